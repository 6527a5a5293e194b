// Who made a step's numbers infinite or NaN, and where.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/comm/comm.h"
#include "trainer_core/input/step_data.h"
#include "trainer_core/model/pass_observer.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/step_tail.h"

namespace muster::trainer {

struct NotFiniteTensor {
  std::string
      name;  // "parameter model.norm.weight", "layer3.context", "gradient of lm_head.weight"
  SampleRange samples;  // of the micro-batch in which it is so; of the rank's first for a parameter
};

// "the first tensor that is not finite is layer3.context, in the batch of global samples 12 to 15"
std::string describe(const NotFiniteTensor& tensor);

// Computes this rank's step, whose first sample is `first`, again and looks for the first tensor that is not finite: what it stores
// of parameters, then for each micro-batch what its forward pass computes, in that order, then its own gradients from the
// head to the embedding. None when all are finite: then only a sum over micro-batches or ranks is not. Leaves another gradient
// block. Of a replica that shares parameters all ranks call it. Errors are those of the data and of groups.
absl::StatusOr<std::optional<NotFiniteTensor>> find_not_finite(RankModel& rank_model,
                                                               StepData& data, uint64_t first);

// Names the origin of a loss or a gradient norm that is not finite: "the loss of rank 3", "the gradient of rank 3".
// `reduced` is the step's tail after its all-reduce, the same on all ranks. Losses are named from it alone; gradients
// are mixed by then, so each rank says whether find_not_finite found something here. Every rank of `group` calls this, and gets
// the same sentence; a peer that is gone leaves the origin unnamed.
std::string name_not_finite(ProcessGroup& group, const StepTail& reduced, bool found_here);

// Both for a step whose first sample is `first`: all ranks of `group` call it and get the same sentence. Where a loss is bad, ranks
// with a good one look only as far as others need them to. `log` gets the tensor, where this rank has found one. An error is that
// of a search that others take part in.
absl::StatusOr<std::string> blame_not_finite(ProcessGroup& group, RankModel& rank_model,
                                             StepData& data, uint64_t first,
                                             const StepTail& reduced, bool own_loss_is_bad,
                                             const std::function<void(const std::string&)>& log);

}  // namespace muster::trainer

// Finds the rank and the tensor that made a step's values infinite or NaN.
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
  // "parameter model.norm.weight", "layer3.context", "gradient of lm_head.weight"
  std::string name;
  SampleRange samples;  // of the micro-batch; for a parameter, of the rank's first micro-batch
};

// "the first tensor that is not finite is layer3.context, in the batch of global samples 12 to 15"
std::string describe(const NotFiniteTensor& tensor);

// Recomputes this rank's step, whose first sample is `first`, and returns the first tensor that is
// not finite. The order: the rank's parameters; for each micro-batch the values of its forward
// pass; then the rank's own gradients from head to embedding. nullopt if all are finite: then only
// a sum over micro-batches or ranks is not. Overwrites the gradients. If the model shares
// parameters, all ranks call it. Errors are those of the data and of groups.
absl::StatusOr<std::optional<NotFiniteTensor>> find_not_finite(RankModel& rank_model,
                                                               StepData& data, uint64_t first);

// Names the origin of a loss or a gradient norm that is not finite: "the loss of rank 3", "the
// gradient of rank 3". `reduced` is the step's tail after its all-reduce, the same on all ranks.
// Losses are named from it alone; gradients are summed by then, so each rank reports whether
// find_not_finite() found something. Every rank of `group` calls this and gets the same sentence;
// if a peer is lost, the origin is the sum of all ranks' gradients.
std::string name_not_finite(ProcessGroup& group, const StepTail& reduced, bool is_local);

// Does both for a step whose first sample is `first`: all ranks of `group` call it and get the same
// sentence. If losses are bad, ranks with a good loss search only if others need their part. `log`
// receives the description of the tensor that this rank has found. Returns the error of a search in
// which other ranks take part.
absl::StatusOr<std::string> blame_not_finite(ProcessGroup& group, RankModel& rank_model,
                                             StepData& data, uint64_t first,
                                             const StepTail& reduced, bool own_loss_is_bad,
                                             const std::function<void(const std::string&)>& log);

}  // namespace muster::trainer

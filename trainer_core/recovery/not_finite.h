// Finds the rank and the tensor from which infinite or NaN values of a step come.
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

// A tensor with such a value.
struct NotFiniteTensor {
  // "parameter model.norm.weight", "layer3.context", "gradient of lm_head.weight"
  std::string name;
  SampleRange samples;  // samples of its micro-batch; for a parameter, of the rank's first one
};

// Returns "the first tensor that is not finite is layer3.context, in the batch of global samples 12
// to 15".
std::string describe(const NotFiniteTensor& tensor);

// Recomputes this rank's step, whose first sample is `first`, and returns the first tensor that is
// not finite. The order is: the parameters of the rank; the values of the forward pass of each
// micro-batch; the gradients that this rank computes, from the head to the embedding. Returns
// nullopt if all these tensors are finite; then only a sum over micro-batches or ranks is not
// finite. Overwrites the gradients. If ranks share parameters, all ranks must call it. Returns the
// errors of the data and of the groups.
absl::StatusOr<std::optional<NotFiniteTensor>> find_not_finite(RankModel& rank_model,
                                                               StepData& data, uint64_t first);

// Returns the origin of a loss or a gradient norm that is not finite: "the loss of rank 3" or "the
// gradient of rank 3". All ranks of `group` must call it, and get the same text. `reduced` has the
// step's values after their all-reduce, which determine the origin of a loss. Gradients are already
// summed, so each rank states in `is_local` whether find_not_finite() has found a tensor on it. If
// a peer is lost, returns a text about the sum of all ranks' gradients.
std::string name_not_finite(ProcessGroup& group, const StepTail& reduced, bool is_local);

// Calls find_not_finite() and name_not_finite() for the step whose first sample is `first`. All
// ranks of `group` must call it, and get the same text. If the losses of some ranks are not finite,
// the other ranks search only if those ranks need their part of the passes. `log` receives the
// description of the tensor that this rank has found. Returns the error of a search in which other
// ranks take part.
absl::StatusOr<std::string> blame_not_finite(ProcessGroup& group, RankModel& rank_model,
                                             StepData& data, uint64_t first,
                                             const StepTail& reduced, bool own_loss_is_bad,
                                             const std::function<void(const std::string&)>& log);

}  // namespace muster::trainer

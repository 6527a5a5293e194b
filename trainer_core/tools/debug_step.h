// `muster-trainer debug-step`: one training step on given tokens that writes out everything it
// computes, so that any model can be compared with another implementation.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

struct DebugStepOptions {
  std::string folder;  // as for ParameterSource::open()
  std::string tokens;  // JSON: a list of equally long lists of token ids
  std::string out;     // a safetensors file, replaced only once it is complete
  int32_t threads = 1;
};

struct DebugStepResult {
  double loss = 0;           // mean over the predicted tokens, nats
  double gradient_norm = 0;  // of the mean loss, before clipping
  int64_t parameter_count = 0;
  // The first tensor that is not finite, in the order: parameters, logits, loss, gradients. Empty
  // if all are finite.
  std::string not_finite = {};
};

// Writes, in fp32: `logits` (B, S, V); `loss` (1); and for every tensor, by its Hugging Face name
// and in its Hugging Face layout, `grad.NAME` (of the mean loss, not clipped) and `param.NAME`
// after one optimizer step. The loss is the cross-entropy of predicting each list's tokens from the
// preceding ones, plus the model's z-loss if configured. If a value is not finite, the optimizer
// step is skipped and no `param.NAME` is written. `settings` gives the optimizer, whose step uses
// the learning rate without a schedule; model, batch and length come from the folder and the
// tokens. Errors: InvalidArgument names the file and the problem; ResourceExhausted names the
// memory needed.
absl::StatusOr<DebugStepResult> debug_step(const TrainConfig& settings,
                                           const DebugStepOptions& options);

}  // namespace muster::trainer

// The command `muster-trainer debug-step`: makes one training step on given tokens and writes its
// results to a file, so that a model can be compared with another implementation.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The options of the command.
struct DebugStepOptions {
  std::string folder;  // a path for ParameterSource::open()
  std::string tokens;  // path of a JSON file: a list of equally long lists of token ids
  std::string out;     // path of a safetensors file to write; replaced only when complete
  int32_t threads = 1;
};

// The figures of the step.
struct DebugStepResult {
  double loss = 0;           // mean over the predicted tokens, in nats
  double gradient_norm = 0;  // norm of the mean loss's gradient, before clipping
  int64_t parameter_count = 0;
  // The name of the first tensor that is not finite, in the order parameters, logits, loss,
  // gradients; empty if all are finite.
  std::string not_finite = {};
};

// Makes the step and writes fp32 tensors: `logits` (B, S, V); `loss` (1); and for every tensor NAME
// of Hugging Face, in the layout of Hugging Face, `grad.NAME` (the gradient of the mean loss, not
// clipped) and `param.NAME` (the parameter after the optimizer's update). The loss is the
// cross-entropy of predicting each token of a list from the preceding ones, plus the model's z-loss
// if it has one. If a value is not finite, the update is skipped and no `param.NAME` is written.
// `settings` has the optimizer, which uses the learning rate without a schedule; the model comes
// from the folder, batch and length from the tokens. Returns InvalidArgument with the file and the
// problem, or ResourceExhausted with the required memory.
absl::StatusOr<DebugStepResult> debug_step(const TrainConfig& settings,
                                           const DebugStepOptions& options);

}  // namespace muster::trainer

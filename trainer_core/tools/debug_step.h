// `muster-trainer debug-step`: one training step on given tokens with everything that it computes written out, so that
// another implementation can be compared with on any model.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

struct DebugStepOptions {
  std::string folder;  // as ParameterSource::open() takes it
  std::string tokens;  // JSON: a list of equally long lists of token ids
  std::string out;     // a safetensors file, replaced when all of it is written
  int32_t threads = 1;
};

struct DebugStepResult {
  double loss = 0;           // mean over the predicted tokens, nats
  double gradient_norm = 0;  // of the mean loss, before clipping
  int64_t parameter_count = 0;
  // The first tensor that is not finite, where there is one: parameters of the folder, logits, loss, gradients.
  std::string not_finite = {};
};

// Writes fp32 `logits` (B, S, V), `loss` (1), for every tensor by its Hugging Face name and in its Hugging Face layout
// `grad.NAME` (of the mean loss, not clipped) and `param.NAME` after one step of the optimizer. The loss is that of
// predicting each list's tokens from those before them: cross-entropy, and the model's z-loss where it has one. Where
// something is not finite, no step is made and no `param.NAME` written. `settings` gives the optimizer, whose step uses
// the learning rate as it is, without a schedule; its model, batch and length are the folder's and the tokens'.
// InvalidArgument names the file and what is wrong with it; ResourceExhausted says what memory it would take.
absl::StatusOr<DebugStepResult> debug_step(const TrainConfig& settings,
                                           const DebugStepOptions& options);

}  // namespace muster::trainer

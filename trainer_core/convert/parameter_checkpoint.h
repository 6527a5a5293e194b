// Writes the parameters of a model as a checkpoint without optimizer state, from which a training
// can start.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/convert/write_hugging_face.h"

namespace muster::trainer {

// Writes the checkpoint <directory>/0, which also contains `config`. Calls `before` before each
// tensor. Returns the errors of the source, of the disk and of `before`.
absl::StatusOr<WrittenWeights> write_checkpoint(const ParameterSource& source,
                                                const TrainConfig& config,
                                                const std::string& directory,
                                                const BeforeTensor& before);

}  // namespace muster::trainer

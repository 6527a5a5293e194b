// Writes a model's parameters as a checkpoint without optimizer state, from which a run can begin.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/convert/write_hugging_face.h"

namespace muster::trainer {

// Writes <directory>/0, which stores `config`. Errors are those of the source and of the disk.
absl::StatusOr<WrittenWeights> write_checkpoint(const ParameterSource& source,
                                                const TrainConfig& config,
                                                const std::string& directory,
                                                const BeforeTensor& before);

}  // namespace muster::trainer

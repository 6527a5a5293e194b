// Reads parameters from a Muster checkpoint.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

// Returns the errors of find_checkpoint(), and those of restore_parameters() if the checkpoint
// contradicts its own config; those of check_unused() if it has tensors that its config has not.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_checkpoint(const std::string& path,
                                                                 Verify verify,
                                                                 UnusedTensors unused);
// Opens the folder that another rank has opened, identified by its description().checksum.
// FailedPrecondition if it is another checkpoint.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_same_checkpoint(const std::string& folder,
                                                                      const std::string& checksum);

}  // namespace muster::trainer

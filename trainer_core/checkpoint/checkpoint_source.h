// Parameters of one of our checkpoints.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

// find_checkpoint()'s errors, and those of restore_parameters() where the checkpoint contradicts its own config.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_checkpoint(const std::string& path,
                                                                 Verify verify);
// The same folder that another rank has opened, by its description().checksum; FailedPrecondition when it is another checkpoint.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_same_checkpoint(const std::string& folder,
                                                                      const std::string& checksum);

}  // namespace muster::trainer

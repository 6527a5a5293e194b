// Reads the parameters of a checkpoint of Muster.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

// Opens the checkpoint at `path`. Returns the errors of find_checkpoint(), those of
// restore_parameters() if the tensors of the checkpoint differ from its config, and those of
// check_unused() if it has tensors that its config lacks.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_checkpoint(const std::string& path,
                                                                 Verify verify,
                                                                 UnusedTensorPolicy unused);
// Opens the checkpoint in `folder` that another rank has already opened; `checksum` is
// description().checksum on that rank. Returns FailedPrecondition if the folder has another
// checkpoint.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_same_checkpoint(const std::string& folder,
                                                                      const std::string& checksum);

}  // namespace muster::trainer

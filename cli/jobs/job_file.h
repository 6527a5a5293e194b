// A resolved job as a file: a JobSpec in protobuf's JSON form. A machine can run such a job without
// its config and presets.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the text of the file for `spec`.
absl::StatusOr<std::string> job_file_of(const v1::JobSpec& spec);
// Reads the file at `path`. Returns InvalidArgument, with the file and the problem, for unknown
// names, wrong types, or a file above the size limit. Does not validate the values; the coordinator
// does.
absl::StatusOr<v1::JobSpec> read_job_file(const std::string& path);

}  // namespace muster::cli

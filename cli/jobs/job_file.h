// A resolved job as a file, for a machine that has neither its config nor its presets: a JobSpec in
// protobuf's JSON form.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

absl::StatusOr<std::string> job_file_of(const v1::JobSpec& spec);
// InvalidArgument names the file and the problem: unknown names, wrong types, or a file above the
// size limit. The coordinator validates the values.
absl::StatusOr<v1::JobSpec> read_job_file(const std::string& path);

}  // namespace muster::cli

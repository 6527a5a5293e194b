// A resolved job as a file, for a machine that has neither its config nor its keys: a JobSpec as protobuf writes JSON.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

absl::StatusOr<std::string> job_file_of(const v1::JobSpec& spec);
// InvalidArgument names the file and what is wrong with it: unknown names, wrong types, more than a job can have. What the job says is the
// coordinator's to judge.
absl::StatusOr<v1::JobSpec> read_job_file(const std::string& path);

}  // namespace muster::cli

// A job whose ranks run the user's own program. Pure.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "muster/v1/muster.pb.h"

namespace muster::jobspec {

// Returns a job with the values that differ from the message's defaults when the user sets nothing.
v1::JobSpec program_defaults();

// Completes the job of a program. Requires a command and an absolute working directory, which is
// the base of a relative output directory. No name: `default_name`. No output directory: the name.
// InvalidArgument names the option that is wrong.
absl::StatusOr<v1::JobSpec> program_job(v1::JobSpec job, const std::string& default_name);

// Returns a name for people: "train.py" for `python3 -u train.py --lr 1`. It has only characters
// that are valid in a job's name.
std::string program_name(const std::vector<std::string>& command);

}  // namespace muster::jobspec

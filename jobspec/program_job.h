// Creates jobs whose ranks run the user's own program. All functions are pure.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "muster/v1/muster.pb.h"

namespace muster::jobspec {

// Returns the job of a user who sets no option, without a command.
v1::JobSpec program_defaults();

// Completes and checks the job of a program. An empty name becomes `default_name`; an empty output
// directory becomes the name; a relative output directory is relative to the working directory.
// Returns InvalidArgument, with the option, if a value is wrong. Requires that `job` has a command
// and an absolute working directory.
absl::StatusOr<v1::JobSpec> program_job(v1::JobSpec job, const std::string& default_name);

// Returns a short name of a command for people: "train.py" for `python3 -u train.py --lr 1`. All
// its characters are valid in a job's name.
std::string program_name(const std::vector<std::string>& command);

}  // namespace muster::jobspec

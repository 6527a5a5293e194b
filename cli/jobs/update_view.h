// Texts about the revisions of a job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the change of `muster update` in one line, which the coordinator stores and shows to all
// users. Values of variables, of keys without effect, and the arguments of programs may be secrets,
// so it has only their names and numbers. `program`: has the new command, if there is one.
std::string change_text(const std::vector<std::string>& overrides,
                        const std::vector<std::string>& environment, const v1::JobSpec& program);

// Returns a line about each revision after the first, the newest ones last; "" if there is none.
std::string describe_revisions(const v1::Job& job, int64_t now_unix_ns);

// Returns the sentence that answers `muster update`.
std::string update_text(const v1::Job& job);

}  // namespace muster::cli

// Texts about the revisions of a job.
#pragma once

#include <cstdint>
#include <string>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns a line about each revision after the first, the newest ones last; "" if there is none.
std::string describe_revisions(const v1::Job& job, int64_t now_unix_ns);

// Returns the sentence that answers `muster update`.
std::string update_text(const v1::Job& job);

}  // namespace muster::cli

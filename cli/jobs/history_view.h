// A job's attempts as text for people and as JSON for programs.
#pragma once

#include <string>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the rows of `muster history`, newest first, and a hint if there are earlier attempts.
// `now_unix_ns`: the current time, for the duration of an attempt that has not ended. Rows are cut
// to `columns_max` columns.
std::string describe_history(const v1::GetJobHistoryResponse& history, int64_t now_unix_ns,
                             size_t columns_max);

// Returns {"attempts": [...], "more": false}, with the fields of muster.v1.JobAttempt.

}  // namespace muster::cli

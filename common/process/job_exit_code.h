// Exit codes of jobs beyond those of their ranks (exit_code.h). `muster run` and `muster submit
// --follow` end with them.
#pragma once

namespace muster {

// The job's restarts made no progress; a further start, also of the whole job, would make none.
constexpr int kNoProgressExitCode = 6;
// The job's time limit is over, as timeout(1) reports it.
constexpr int kTimeLimitExitCode = 124;

}  // namespace muster

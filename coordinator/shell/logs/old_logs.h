// Removes the logs of a job's old attempts: a job that is restarted for months must not fill the
// coordinator's disk. Blocks on the file system.
#pragma once

#include <cstdint>
#include <string>

#include "common/job/ids.h"
#include "common/time/time.h"

namespace muster::coordinator {

struct LogLimits {
  // The size of the logs of one job's old attempts: that of 32 ranks that fill their logs
  // (kLogBytesPerRankMax).
  uint64_t bytes_per_job_max = uint64_t{8} << 30;
  // The time since an attempt's last output. Faults are examined within days.
  Duration age_max = std::chrono::hours(24 * 90);
};

// Removes folders of attempts up to `last` from the job's folder `root`, oldest first: those whose
// last output is older than age_max, and further ones while these attempts together exceed
// bytes_per_job_max. Stores the number of the newest removed attempt. Errors only waste space.
void remove_old_logs(const std::string& root, Attempt last, const LogLimits& limits);

// Returns the number of the newest attempt whose logs were removed from the job's folder; 0: none.
Attempt removed_logs(const std::string& root);

}  // namespace muster::coordinator

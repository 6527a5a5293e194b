// Arrival times of the parts of a rank's log, in a file beside it; used to merge logs of many
// ranks. Records of 16 bytes, in native little endian: u64 first offset · i64 Unix time in ns; both
// ascend. Workers ship output at once, so the coordinator's clock, one clock for all ranks, orders
// it; output written while the coordinator was unreachable has its time of arrival.
//
// Optional: a log with missing or damaged times is still valid. As thread-safe as the file: one
// writer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::coordinator {

struct LogTime {
  uint64_t offset = 0;
  int64_t unix_ns = 0;

  friend bool operator==(const LogTime&, const LogTime&) = default;
};

// Times take at most an eighth of the log's size beyond the first thousand records, so that ranks
// with little output are timed exactly.
constexpr uint64_t kLogTimesFree = 1024;
constexpr uint64_t kLogBytesPerTime = 128;

// The writer's state between two calls.
struct LogTimesEnd {
  bool known = false;
  uint64_t count = 0;
  LogTime last;
};

// Records that the log's bytes from `time.offset` on arrived at that time. Writes nothing for the
// last record's offset, or beyond the bound.
void add_log_time(const std::string& path, LogTimesEnd& end, LogTime time);

// Returns the record that covers `offset` and those after it, at most `count_max`; empty if there
// are none.
std::vector<LogTime> read_log_times(const std::string& path, uint64_t offset, size_t count_max);

}  // namespace muster::coordinator

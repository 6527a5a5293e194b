// Arrival times of the parts of a rank's log, in a file beside the log. They are used to merge the
// logs of many ranks. Records of 16 bytes, in native little endian: u64 first offset · i64 Unix
// time in ns; both ascend. Workers send output immediately, so the arrival times, from the
// coordinator's clock alone, order the output of all ranks. Output that was written while the
// coordinator was unreachable has the time of its arrival.
//
// Optional: a log with missing or damaged times is still valid. One thread at a time writes a file.
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

// Bounds of the number of records: the first kLogTimesFree are always written, so that ranks with
// little output have exact times; beyond them, the times take at most an eighth of the log's size.
constexpr uint64_t kLogTimesFree = 1024;
constexpr uint64_t kLogBytesPerTime = 128;

// The writer's state between two calls.
struct LogTimesEnd {
  bool known = false;
  uint64_t count = 0;
  LogTime last;
};

// Records that the log's bytes from `time.offset` on arrived at `time.unix_ns`. Writes nothing if
// the last record has the same offset, or beyond the bound.
void add_log_time(const std::string& path, LogTimesEnd& end, LogTime time);

// Returns the record that covers `offset` and the following records, at most `count_max`; empty if
// there are no such records.
std::vector<LogTime> read_log_times(const std::string& path, uint64_t offset, size_t count_max);

}  // namespace muster::coordinator

// When the parts of a rank's log came: a file beside it, by which logs of many ranks are merged. Records of 16 bytes, little endian as the
// machine: u64 offset from which it is · i64 Unix time in ns; both grow. Workers send what a rank writes at once, so the coordinator's clock, which is one
// clock for all ranks, is what orders them; what was written while it could not be reached has the time at which it came.
//
// A convenience: a log without times, or with damaged ones, is a log all the same. As thread-safe as the file: one writer.
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

// Times take an eighth of what a log takes at most, beyond the first thousand: who writes a word now and then is told by when, too.
constexpr uint64_t kLogTimesFree = 1024;
constexpr uint64_t kLogBytesPerTime = 128;

// What the writer remembers between two calls.
struct LogTimesEnd {
  bool known = false;
  uint64_t count = 0;
  LogTime last;
};

// The log's bytes from `time.offset` came at that time. With the last record's offset, or beyond the bound: nothing is written.
void add_log_time(const std::string& path, LogTimesEnd& end, LogTime time);

// The record that covers `offset`, and those behind it, `count_max` in all; empty when there are none.
std::vector<LogTime> read_log_times(const std::string& path, uint64_t offset, size_t count_max);

}  // namespace muster::coordinator

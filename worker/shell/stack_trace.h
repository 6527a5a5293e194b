// One rank's stacks at one moment, as a periodic trace formats them: text for its output, a JSON
// object for log agents and OTLP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "common/stack_tree.h"
#include "worker/core/rank.h"

namespace muster::worker {

// Log services accept entries of 256 KiB, including the envelope.
constexpr size_t kTraceTextBytesMax = 100 << 10;

struct StackTrace {
  RankKey key;
  std::string job_name;
  std::string worker;
  int32_t pid = 0;
  int64_t unix_ns = 0;
  StackTree stacks;     // of this rank alone, with symbols
  std::string problem;  // empty: stacks were read
  std::string note;     // what the stacks lack
};

// Returns "2026-11-22T12:00:00.123Z".
std::string utc_time(int64_t unix_ns);

// Returns complete lines, main thread first, innermost frame first; at most kTraceTextBytesMax,
// with a sentence about what was cut.
std::string trace_text(const StackTrace& trace);
// Returns one log entry with the text as its message. `verb` has the value that log queries for
// MaxText's traces match.
nlohmann::json trace_record(const StackTrace& trace);

}  // namespace muster::worker

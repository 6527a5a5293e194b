// One rank's stacks at one moment, and their formats in periodic traces: text for the rank's
// output, and a JSON object for log agents and OTLP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "common/stacks/stack_tree.h"
#include "worker/core/rank.h"

namespace muster::worker {

// Maximum size of a trace's text. Log services accept entries of up to 256 KiB, including their
// other fields.
constexpr size_t kTraceTextBytesMax = 100 << 10;

// One trace of one rank.
struct StackTrace {
  RankKey key;
  std::string job_name;
  std::string worker;
  int32_t pid = 0;
  int64_t unix_ns = 0;
  StackTree stacks;     // stacks of this rank only, with symbols
  std::string problem;  // empty: stacks were read
  std::string note;     // names the missing parts of the stacks; empty: complete
};

// Returns "2026-11-22T12:00:00.123Z".
std::string utc_time(int64_t unix_ns);

// Returns the trace as complete lines, main thread first, innermost frame first. If the text
// exceeds kTraceTextBytesMax, cuts it and adds a sentence that states how much is missing.
std::string trace_text(const StackTrace& trace);
// Returns one log entry with trace_text() as its message. The member `verb` has the value by which
// users' log queries find MaxText's traces.
nlohmann::json trace_record(const StackTrace& trace);

}  // namespace muster::worker

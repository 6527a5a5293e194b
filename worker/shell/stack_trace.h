// One rank's stacks at one moment, as a periodic trace tells them: text for its output, an object for log agents and OTLP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "common/stack_tree.h"
#include "worker/core/rank.h"

namespace muster::worker {

// Log services take entries of 256 KiB, with everything around them.
constexpr size_t kTraceTextBytesMax = 100 << 10;

struct StackTrace {
  RankKey key;
  std::string job_name;
  std::string worker;
  int32_t pid = 0;
  int64_t unix_ns = 0;
  StackTree stacks;     // of this rank alone, with symbols
  std::string problem;  // empty: they were read
  std::string note;     // what is missing in them
};

// "2026-11-22T12:00:00.123Z".
std::string utc_time(int64_t unix_ns);

// Whole lines, the main thread first, the innermost frame first; at most kTraceTextBytesMax and a sentence that says so.
std::string trace_text(const StackTrace& trace);
// One entry of a log, with the text as its message; `verb` is what log queries for MaxText's traces look for.
nlohmann::json trace_record(const StackTrace& trace);

}  // namespace muster::worker

// A job's request for periodic stack traces: MaxText's collect_stack_trace, stack_trace_to_cloud
// and stack_trace_interval_seconds.
#pragma once

#include <cstdint>

namespace muster {

// Bounds of the interval. A trace stops each rank for some milliseconds and writes a result: more
// than one trace per second would be profiling.
constexpr int64_t kStackTraceIntervalSecondsMin = 1;
constexpr int64_t kStackTraceIntervalSecondsMax = 7 * 86'400;

struct StackTraceSpec {
  bool collect = false;
  // true: traces go to a log agent or an OTLP endpoint; false: to each rank's own output
  bool to_cloud = false;
  int64_t interval_seconds = 600;

  friend bool operator==(const StackTraceSpec&, const StackTraceSpec&) = default;
};

}  // namespace muster

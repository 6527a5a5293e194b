// What a job wants of periodic stack traces: MaxText's collect_stack_trace, stack_trace_to_cloud and stack_trace_interval_seconds.
#pragma once

#include <cstdint>

namespace muster {

// A trace stops each rank for some milliseconds and is written somewhere: more often than each second is no trace but a profile.
constexpr int64_t kStackTraceIntervalSecondsMin = 1;
constexpr int64_t kStackTraceIntervalSecondsMax = 7 * 86'400;

struct StackTraceSpec {
  bool collect = false;
  bool to_cloud =
      false;  // for a log agent or an OTLP endpoint; otherwise into each rank's own output
  int64_t interval_seconds = 600;

  friend bool operator==(const StackTraceSpec&, const StackTraceSpec&) = default;
};

}  // namespace muster

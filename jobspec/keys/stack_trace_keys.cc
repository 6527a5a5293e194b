#include "jobspec/keys/stack_trace_keys.h"

#include <absl/strings/str_cat.h>

#include "common/job/stack_trace_spec.h"

namespace muster::jobspec {

void read_stack_traces(SettingsReader& reader, v1::StackTraces& traces,
                       std::vector<std::string>& warnings) {
  StackTraceSpec spec;
  reader.read("collect_stack_trace", spec.collect);
  reader.read("stack_trace_to_cloud", spec.to_cloud);
  reader.read("stack_trace_interval_seconds", spec.interval_seconds);
  reader.require(spec.interval_seconds >= kStackTraceIntervalSecondsMin &&
                     spec.interval_seconds <= kStackTraceIntervalSecondsMax,
                 "stack_trace_interval_seconds",
                 absl::StrCat("must be from ", kStackTraceIntervalSecondsMin, " to ",
                              kStackTraceIntervalSecondsMax));
  for (const char* key : {"stack_trace_to_cloud", "stack_trace_interval_seconds"}) {
    if (!spec.collect && reader.is_set_by_user(key))
      warnings.push_back(absl::StrCat(key, " has no effect: collect_stack_trace is false"));
  }
  traces.set_collect(spec.collect);
  traces.set_to_cloud(spec.to_cloud);
  traces.set_interval_seconds(spec.interval_seconds);
}

}  // namespace muster::jobspec

#include "trainer_core/forecast/paired_calls.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <absl/strings/str_cat.h>

namespace muster::trainer {

absl::StatusOr<std::vector<MeasuredWork>> pair_calls(const StepTrace& trace,
                                                     const std::vector<TimedCall>& calls,
                                                     double overhead, double memory_gb_s) {
  constexpr double kSecondsMin = 1e-9;
  std::vector<MeasuredWork> works;
  size_t next = 0;
  double converted = 0;  // bytes
  for (const TracedWork& work : trace.of(StepStream::kCompute)) {
    const std::string_view name = work.name;
    if (work.kind == WorkKind::kCollective) continue;
    if (name == "convert") {
      converted += work.bytes;
      continue;
    }
    const std::string_view called = next < calls.size() ? calls[next].name : "none";
    if (called != name)
      return absl::InternalError(absl::StrCat("operation ", next, " of a step is ",
                                              std::string(called), ", and the recording has ",
                                              std::string(name)));
    const double seconds = calls[next].seconds - overhead - converted / (memory_gb_s * 1e9);
    works.push_back({work, std::max(seconds, kSecondsMin)});
    converted = 0;
    ++next;
  }
  if (next != calls.size())
    return absl::InternalError(
        absl::StrCat("a step has ", calls.size(), " operations, and the recording has ", next));
  return works;
}

}  // namespace muster::trainer

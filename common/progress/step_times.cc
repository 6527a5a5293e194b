#include "common/progress/step_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace muster {

void StepTimes::add(double step_seconds) {
  if (!std::isfinite(step_seconds) || step_seconds < 0) step_seconds = 0;
  const auto* bound =
      std::lower_bound(kStepSecondsBounds.begin(), kStepSecondsBounds.end(), step_seconds);
  ++counts[static_cast<size_t>(bound - kStepSecondsBounds.begin())];
  seconds += step_seconds;
}

uint64_t StepTimes::total() const {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

std::optional<StepTimes> StepTimes::since(const StepTimes& earlier) const {
  StepTimes added;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < earlier.counts[i]) return std::nullopt;
    added.counts[i] = counts[i] - earlier.counts[i];
  }
  added.seconds = seconds - earlier.seconds;
  if (!std::isfinite(added.seconds) || added.seconds < 0) return std::nullopt;
  return added;
}

}  // namespace muster

// A histogram of the durations of the steps that a rank completed since its attempt began. It is
// cumulative, so no step is lost on its way to the metrics: each reader (the worker reads pages,
// the coordinator reads heartbeats) counts the steps that were added since its last sample, and a
// lost or repeated message does no harm. The struct is plain memory and uses only the standard
// library, because it is part of the progress page.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace muster {

// Upper bounds of the histogram's buckets, in seconds, from a tiny model on a laptop to a large
// model across a fleet. They are part of the progress page's layout.
constexpr std::array<double, 15> kStepSecondsBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                       2.5,   5,    10,    25,   50,  100,  250};

struct StepTimes {
  // counts[i]: steps of at most kStepSecondsBounds[i] seconds and above the previous bound. The
  // last entry: longer steps.
  std::array<uint64_t, kStepSecondsBounds.size() + 1> counts{};
  double seconds = 0;  // sum over all these steps

  // Counts one step. A negative or non-finite duration counts as 0.
  void add(double step_seconds);
  uint64_t total() const;

  // Returns the steps added since `earlier`, or nullopt if `earlier` is not an earlier state of the
  // same counts: the numbers come from pages and messages.
  std::optional<StepTimes> since(const StepTimes& earlier) const;
};

}  // namespace muster

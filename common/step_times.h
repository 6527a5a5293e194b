// How long steps took: a histogram of the steps that a rank completed since its attempt began. Being cumulative, it loses
// no step on its way to the metrics: whoever looks now and then (the worker at the ranks' pages, the coordinator at
// heartbeats) counts what has been added since, however many steps that were, and a message that is lost or comes twice
// changes nothing. std only, and plain memory: it is part of the progress page.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace muster {

// Seconds: from a tiny model on a laptop to a large one across a fleet. Part of the progress page's layout.
constexpr std::array<double, 15> kStepSecondsBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                       2.5,   5,    10,    25,   50,  100,  250};

struct StepTimes {
  // counts[i]: steps of at most kStepSecondsBounds[i] seconds and longer than the bound before; the last: longer ones.
  std::array<uint64_t, kStepSecondsBounds.size() + 1> counts{};
  double seconds = 0;  // of all these steps together

  // Time that is negative or not finite counts as none.
  void add(double step_seconds);
  uint64_t total() const;

  // What this has more than `earlier`. None when that is no earlier state of the same counts: the numbers come from
  // pages and messages.
  std::optional<StepTimes> since(const StepTimes& earlier) const;
};

}  // namespace muster

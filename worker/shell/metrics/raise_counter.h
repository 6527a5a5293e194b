// Exports a counter that another program counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <prometheus/counter.h>
#include <prometheus/family.h>

namespace muster::worker {

// Raises the series with `labels` to `value`. A driver that is loaded again counts from 0, which
// must not decrease the counter. Without a value nothing changes.
inline void raise_counter(prometheus::Family<prometheus::Counter>& family,
                          const std::map<std::string, std::string>& labels,
                          const std::optional<uint64_t>& value) {
  if (!value) return;
  prometheus::Counter& counter = family.Add(labels);
  counter.Increment(std::max(0.0, static_cast<double>(*value) - counter.Value()));
}

}  // namespace muster::worker

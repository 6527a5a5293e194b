// Exports a counter that another program counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <prometheus/counter.h>
#include <prometheus/family.h>

namespace muster::worker {

// Sets the series with `labels` to `value`, and returns it. A driver that is loaded again counts
// from 0: then the series decreases, which Prometheus' rate() takes for a reset. Without a value
// nothing changes, and the result is null.
inline prometheus::Counter* set_counter(prometheus::Family<prometheus::Counter>& family,
                                        const std::map<std::string, std::string>& labels,
                                        const std::optional<uint64_t>& value) {
  if (!value) return nullptr;
  const auto target = static_cast<double>(*value);
  prometheus::Counter* counter = &family.Add(labels);
  if (counter->Value() > target) {
    family.Remove(counter);
    counter = &family.Add(labels);
  }
  counter->Increment(target - counter->Value());
  return counter;
}

}  // namespace muster::worker

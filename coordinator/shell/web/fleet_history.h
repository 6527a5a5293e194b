// The fleet's use and goodput over time. Volatile and bounded: when it is full, every second point
// is removed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/time/time.h"
#include "coordinator/shell/web/fleet_sample.h"

namespace muster::coordinator {

// The time between two points at first.
constexpr Duration kFleetPointEvery = std::chrono::seconds(10);
constexpr size_t kFleetPoints = 512;

class FleetHistory {
 public:
  // Returns whether a point is due.
  bool is_due(Instant now) const { return points_.empty() || now - added_at_ >= interval_; }
  // Requires a sample with totals.
  void add(const FleetSample& sample, Instant now);
  // Returns the object FleetHistory of the API.
  nlohmann::json to_json() const;

 private:
  struct Point {
    int64_t unix_ns = 0;
    int64_t gpus_used = 0, gpus_total = 0;
    int64_t running_jobs = 0, queued_jobs = 0;
    double tokens_per_second = 0;
    double productive_seconds = 0, wall_seconds = 0;
    std::map<std::string, double> lost;  // seconds by cause
  };

  Duration interval_ = kFleetPointEvery;
  Instant added_at_{};
  std::vector<Point> points_;
};

}  // namespace muster::coordinator

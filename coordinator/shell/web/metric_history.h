// The figures of a job over time, for its curves. Volatile and bounded: the newest samples as they
// are, and all of the job's life in larger and larger steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace muster::coordinator {

// Some minutes at one sample per second.
constexpr size_t kRecentPoints = 256;
// When so many older points are stored, every second one is removed.
constexpr size_t kOldPoints = 512;

struct MetricPoint {
  int64_t unix_ns = 0;
  uint32_t attempt = 0;
  int64_t step = -1;
  double loss = 0;
  double grad_norm = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;  // the sum of all ranks
  double mfu = 0;                // the mean of the ranks; 0: unknown
  double learning_rate = 0;      // 0: not reported
};

class MetricHistory {
 public:
  // Adds a sample. Ignores it if no step was completed since the last one.
  // Returns whether it was added.
  bool add(const MetricPoint& point);

  // Returns the points after `unix_ns`, oldest first.
  std::vector<MetricPoint> since(int64_t unix_ns) const;

 private:
  std::deque<MetricPoint> recent_;
  std::vector<MetricPoint> old_;
  uint64_t stride_ = 1;   // every stride_-th sample that becomes old is stored
  uint64_t dropped_ = 0;  // samples that became old
};

}  // namespace muster::coordinator

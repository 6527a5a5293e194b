// Decides when a job that runs on fewer nodes than requested restarts on more.
#pragma once

#include <cstdint>
#include <optional>

#include "common/time/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The growth of one attempt. Volatile.
class Growth {
 public:
  explicit Growth(Instant started = {}) : started_(started) {}

  // Returns whether the job ends its attempt now, to restart on `nodes` nodes, which are available
  // in this placement pass. The larger size has to be available for some time, which doubles each
  // time the job grows.
  bool is_due(const Job& job, int32_t nodes, const CoreOptions& options, Instant now);
  // Excludes coordinator downtime: extends the waiting periods by `time`.
  void excuse(Duration time);

 private:
  Instant started_;
  // The time since which `nodes_` nodes, including the present ones, have been available.
  std::optional<Instant> larger_since_;
  int32_t nodes_ = 0;
};

// Returns the fault that ends the attempt so that the job can restart on `nodes` nodes. It does not
// count against the job.
Fault growth_fault(const Job& job, int32_t nodes, int64_t unix_ns);

}  // namespace muster::coordinator

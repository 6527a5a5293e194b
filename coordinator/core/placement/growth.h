// When a job that runs on fewer nodes than it asked for leaves them for more.
#pragma once

#include <cstdint>
#include <optional>

#include "common/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The growth of one attempt. Volatile.
class Growth {
 public:
  explicit Growth(Instant started = {}) : started_(started) {}

  // The job could have `nodes` nodes in this pass. True: it leaves its present ones for them now.
  // A larger size has to be there for a while, longer after each time that the job has grown.
  bool is_due(const Job& job, int32_t nodes, const CoreOptions& options, Instant now);
  // The coordinator stood still for `time`.
  void excuse(Duration time);

 private:
  Instant started_;
  // Since when there have been nodes for `nodes_` nodes in all.
  std::optional<Instant> roomy_since_;
  int32_t nodes_ = 0;
};

// The end of an attempt that leaves its nodes for `nodes` ones: a fault that counts for nothing.
Fault growth_fault(const Job& job, int32_t nodes, int64_t unix_ns);

}  // namespace muster::coordinator

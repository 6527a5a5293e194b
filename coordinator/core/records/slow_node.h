// A node that slows its job down: confirmed over some minutes, and relieved of its ranks at a
// checkpoint. A value without behaviour; durable, because the suspicion outlives the attempt.
//
//   confirmed ──an attempt runs without the node──▶ measured: the steps are faster, or not
//       │
//       └──as fast as the others again──▶ forgotten
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/job/ids.h"
#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

struct SlowNode {
  WorkerName worker;
  IncidentId incident{0};
  int64_t unix_ns = 0;        // the time of the confirmation
  int32_t nodes = 0;          // nodes of the attempt with this one
  double step_seconds = 0;    // the job's median step at the confirmation
  double excess_seconds = 0;  // the part of each step in which the other nodes wait for this one
  bool is_measured = false;   // an attempt without the node has shown its effect
  bool was_in_vain = false;   // that attempt's steps were not faster

  friend bool operator==(const SlowNode&, const SlowNode&) = default;
};

// The number of retained nodes of a job: the newest ones.
constexpr size_t kSlowNodesKeptMax = 16;

}  // namespace muster::coordinator

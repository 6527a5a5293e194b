// A node that slows its job down: confirmed over some minutes, and relieved of its ranks at a
// checkpoint. A value without behaviour; durable, because the suspicion outlives the attempt.
//
//   confirmed ──an attempt runs without the node──▶ measured: the steps are faster, or not
//       │
//       └──as fast as the others again──▶ forgotten
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

struct SlowNode {
  WorkerName worker;
  IncidentId incident{0};
  int64_t unix_ns = 0;            // the newest time at which it was found to be slow
  bool is_only_reported = false;  // the coordinator's options allow no more
  // The attempt with this node: the job's revision, the number of nodes, the median step.
  int32_t revision = 1;
  int32_t nodes = 0;
  double step_seconds = 0;    // 0: not known
  double excess_seconds = 0;  // the part of each step in which the other nodes wait for this one
  int64_t left_unix_ns = 0;   // the time at which the job left it because of this; 0: it has not
  bool is_measured = false;   // an attempt without the node has shown its effect
  bool was_in_vain = false;   // that attempt's steps were not faster

  friend bool operator==(const SlowNode&, const SlowNode&) = default;
};

// The number of retained nodes of a job.
constexpr size_t kSlowNodesKeptMax = 16;
// The time for which a job avoids a slow node, and for which it stays where it is after a move that
// was in vain.
constexpr Duration kSlowAvoidedFor = std::chrono::hours(24);

// Returns whether the node was slow within kSlowAvoidedFor.
inline bool is_recent(const SlowNode& node, int64_t unix_ns) {
  return unix_ns < node.unix_ns + kSlowAvoidedFor / std::chrono::nanoseconds(1);
}

}  // namespace muster::coordinator

#include "coordinator/core/placement/growth.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/process/exit_code.h"
#include "common/time/doubled.h"

namespace muster::coordinator {

bool Growth::is_due(const Job& job, int32_t nodes, const CoreOptions& options, Instant now) {
  if (nodes != nodes_) larger_since_.reset();
  nodes_ = nodes;
  if (nodes <= nodes_now(job)) return false;
  if (!larger_since_) larger_since_ = now;
  constexpr int32_t kTimesMax = 64;  // about half an hour with the default grow_stable
  const Duration stable =
      doubled(options.grow_stable, job.resizes, kTimesMax * options.grow_stable);
  const Instant due = std::max(*larger_since_ + stable, started_ + options.grow_after);
  if (job.state != JobState::kRunning || job.cancel_requested || due > now) return false;
  return job.exits.empty();  // otherwise the attempt is about to end
}

void Growth::excuse(Duration time) {
  started_ += time;
  if (larger_since_) *larger_since_ += time;
}

Fault growth_fault(const Job& job, int32_t nodes, int64_t unix_ns) {
  const int32_t more = nodes - nodes_now(job);
  Fault cause;
  cause.exit_code = to_int(ExitCode::kPreempted);
  cause.unix_ns = unix_ns;
  for (const RankState& rank : job.ranks) cause.last_step = std::max(cause.last_step, rank.step);
  cause.message =
      absl::StrCat(more, more == 1 ? " more node is" : " more nodes are", " free: it leaves its ",
                   nodes_now(job), " to continue on ", nodes, " of ", job.spec.nodes);
  return cause;
}

}  // namespace muster::coordinator

// The orders to start the ranks of a placed job, and the description of its start.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "coordinator/core/placement/domain_text.h"
#include "coordinator/core/placement/placement_pass.h"
#include "coordinator/core/placement/waiting_text.h"
#include "coordinator/core/records/list_text.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/avoidance.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

std::shared_ptr<const JobSpec> spec_of_attempt(const Job& job) {
  return std::make_shared<const JobSpec>(spec_of_size(job.spec, nodes_now(job)));
}

SendToWorker order_to_start(const Job& job, std::shared_ptr<const JobSpec> spec,
                            const RanksByWorker& ranks, const Worker& worker) {
  SendStartRanks order{job.id,
                       job.attempt,
                       std::move(spec),
                       {},
                       job.rendezvous_address,
                       job.program_port,
                       job.faults.empty() ? -1 : job.faults.back().checkpoint_step,
                       rendezvous_time_of(job)};
  for (const Rank rank : ranks.at(worker.name))
    order.ranks.push_back(job.placement[static_cast<size_t>(rank.value())]);
  return send_action(worker, std::move(order));
}

std::string start_text(const Job& job, const Fleet& fleet, int64_t unix_ns) {
  const std::vector<WorkerName> now = nodes_of(job.placement);
  const std::string replaced =
      now.size() >= job.previous_nodes.size() ? replaced_text(job.previous_nodes, now) : "";
  std::string text =
      absl::StrCat("attempt ", job.attempt.value(), ": starting ", job.placement.size(),
                   job.placement.size() == 1 ? " rank on " : " ranks on ", now.front().value(),
                   now.size() > 1 ? absl::StrCat(" … ", now.back().value()) : std::string());
  if (!replaced.empty())
    absl::StrAppend(&text, ", ", replaced, left_domains_text(job.previous_nodes, now, fleet));
  absl::StrAppend(&text, split_segments_text(now, job.spec.segment_nodes, fleet));
  if (nodes_now(job) == job.spec.nodes) return text;
  std::vector<std::string> avoided;
  for (const WorkerName& name : nodes_to_avoid(job, unix_ns))
    if (fleet.find(name) != nullptr) avoided.push_back(name.value());
  absl::StrAppend(&text, ", ", size_text(job), ": no more are free now",
                  avoided.empty() ? "" : " but what it avoids: " + absl::StrJoin(avoided, ", "));
  return text;
}

}  // namespace muster::coordinator

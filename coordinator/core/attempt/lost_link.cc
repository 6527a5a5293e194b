#include "coordinator/core/attempt/lost_link.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/core/recovery/log_verdict.h"
#include "coordinator/core/recovery/rank_faults.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

std::optional<Fault> fault_of_lost_link(const Job& job, int64_t unix_ns) {
  if (nodes_now(job) < 2) return std::nullopt;
  const auto worker_of = [&](const RankExit& exit) {
    return job.placement[static_cast<size_t>(exit.rank.value())].worker;
  };
  const RankExit* down = nullptr;
  std::set<WorkerName> nodes;
  for (const RankExit& exit : job.exits) {
    if (!exit.link_is_down || (!is_witness(exit) && !is_victim(exit))) continue;
    nodes.insert(worker_of(exit));
    if (down == nullptr) down = &exit;
  }
  if (down == nullptr) return std::nullopt;
  Fault fault = fault_of(*down, worker_of(*down), unix_ns);
  fault.family = kNetworkLinkLost;
  if (nodes.size() == 1) {
    absl::StrAppend(&fault.message, "; ", down->lost_link);
    return fault;
  }
  fault.rank = Rank(-1);
  fault.worker = WorkerName();
  fault.nodes_without_link.assign(nodes.begin(), nodes.end());
  if (nodes.size() > kNodesWithoutLinkMax) fault.nodes_without_link.resize(kNodesWithoutLinkMax);
  fault.message =
      absl::StrCat("network links of ", nodes.size(),
                   " nodes are down, perhaps by a failed switch; for example: ", fault.message,
                   "; ", down->lost_link);
  return fault;
}

}  // namespace muster::coordinator

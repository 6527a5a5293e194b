#include "coordinator/core/attempt/slow_node_records.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "coordinator/core/recovery/slow_nodes.h"

namespace muster::coordinator {
namespace {

std::string confirmed_text(const SlowNodeWatch::Change& change) {
  return absl::StrFormat(
      "node %s slows the job down: rank %d computes %.3g s a step there, and the ranks of the same "
      "number on the other nodes %.3g s",
      change.worker.value(), change.rank.value(), change.seconds, change.typical);
}

// Returns the incident of the node: that of its first slow rank, which continues as the node's, or
// another one. Closes those of its other ranks.
IncidentId incident_of(const SlowNodeWatch::Change& change, AttemptProgress& progress,
                       const Job& job, IncidentBook& incidents, const CoreTime& time) {
  const std::string text = confirmed_text(change);
  IncidentId known{0};
  for (auto entry = progress.slow.begin(); entry != progress.slow.end();) {
    if (job.placement[static_cast<size_t>(entry->first.value())].worker != change.worker) {
      ++entry;
      continue;
    }
    const IncidentId id = entry->second;
    entry = progress.slow.erase(entry);
    if (known == IncidentId(0)) {
      known = id;
      incidents.note(id, time.unix_ns, text);
    } else {
      incidents.note(id, time.unix_ns,
                     absl::StrCat("its node is slow (incident ", known.value(), ")"));
      incidents.close(id);
    }
  }
  if (known != IncidentId(0)) return known;
  Fault what;
  what.rank = change.rank;
  what.worker = change.worker;
  what.unix_ns = time.unix_ns;
  what.message = text;
  return incidents.open(incident_of_fault(job, what, IncidentKind::kSlowRank, 0));
}

}  // namespace

bool record_slow_nodes(AttemptProgress& progress, Job& job, IncidentBook& incidents,
                       const CoreTime& time) {
  bool has_changed = false;
  const auto changes =
      progress.slow_node_watch.compare(progress.stragglers, progress.rank_history, job, time.now);
  for (const SlowNodeWatch::Change& change : changes) {
    const SlowNode* known = unmeasured_slow_node(job, change.worker);
    if (change.is_slow && known == nullptr) {
      SlowNode node;
      node.worker = change.worker;
      node.incident = incident_of(change, progress, job, incidents, time);
      node.unix_ns = time.unix_ns;
      node.nodes = nodes_now(job);
      node.step_seconds = progress.step_watch.seconds();
      node.excess_seconds = change.seconds - change.typical;
      incidents.change(node.incident)->action = "none yet: it was confirmed just now";
      add_slow_node(job, std::move(node));
      has_changed = true;
    } else if (!change.is_slow && known != nullptr) {
      incidents.note(known->incident, time.unix_ns, "it is as fast as the others again");
      if (Incident* incident = incidents.change(known->incident))
        incident->action = "none: it is as fast as the others again";
      incidents.close(known->incident);
      forget_slow_node(job, change.worker);
      has_changed = true;
    }
  }
  return has_changed;
}

bool measure_moves(const AttemptProgress& progress, Job& job, IncidentBook& incidents,
                   const CoreTime& time) {
  const double seconds = progress.step_watch.seconds();
  if (seconds <= 0 || !progress.slow_node_watch.is_quiet(time.now)) return false;
  bool has_changed = false;
  for (SlowNode& node : job.slow_nodes) {
    const bool is_in_use = std::ranges::any_of(
        job.placement, [&](const RankPlacement& rank) { return rank.worker == node.worker; });
    if (node.is_measured || is_in_use) continue;
    const std::string text = measure_move(node, nodes_now(job), seconds);
    incidents.note(node.incident, time.unix_ns, text);
    if (Incident* incident = incidents.change(node.incident)) incident->action = text;
    incidents.close(node.incident);
    has_changed = true;
  }
  return has_changed;
}

}  // namespace muster::coordinator

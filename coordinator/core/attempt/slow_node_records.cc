#include "coordinator/core/attempt/slow_node_records.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "coordinator/core/recovery/slow_nodes.h"

namespace muster::coordinator {
namespace {

std::string confirmed_text(const SlowNodeWatch::Change& change) {
  return absl::StrFormat(
      "node %s slows the job down: rank %d computes %.3g s a step there, and the others at most "
      "%.3g s",
      change.worker.value(), change.rank.value(), change.seconds, change.others);
}

// Returns the incident of the node: that of its first rank that computes slowly, which continues as
// the node's, or another one. Closes those of its other ranks, and that of a job that is slower
// than before because of them.
IncidentId incident_of(const SlowNodeWatch::Change& change, AttemptProgress& progress,
                       const Job& job, IncidentBook& incidents, const CoreTime& time) {
  const std::string text = confirmed_text(change);
  IncidentId id{0};
  const auto close = [&](IncidentId other) {
    incidents.note(
        other, time.unix_ns,
        absl::StrCat("node ", change.worker.value(), " is slow (incident ", id.value(), ")"));
    incidents.close(other);
  };
  std::vector<IncidentId> others;
  for (auto entry = progress.slow.begin(); entry != progress.slow.end();) {
    const auto& [rank, incident] = *entry;
    if (incident.kind != SlowKind::kCompute ||
        job.placement[static_cast<size_t>(rank.value())].worker != change.worker) {
      ++entry;
      continue;
    }
    if (id == IncidentId(0))
      id = incident.id;
    else
      others.push_back(incident.id);
    entry = progress.slow.erase(entry);
  }
  if (id == IncidentId(0)) {
    Fault what;
    what.rank = change.rank;
    what.worker = change.worker;
    what.unix_ns = time.unix_ns;
    what.message = text;
    id = incidents.open(incident_of_fault(job, what, IncidentKind::kSlowRank, 0));
  } else {
    incidents.note(id, time.unix_ns, text);
  }
  for (const IncidentId other : others) close(other);
  if (progress.slower_than_before) {
    const Incident* slower = incidents.find(*progress.slower_than_before);
    const bool is_its_cause =
        slower != nullptr && std::ranges::any_of(slower->suspects, [&](const Suspect& suspect) {
          return suspect.worker == change.worker;
        });
    if (is_its_cause) close(*std::exchange(progress.slower_than_before, std::nullopt));
  }
  return id;
}

}  // namespace

bool record_slow_nodes(AttemptProgress& progress, Job& job, SlowNodePolicy policy,
                       IncidentBook& incidents, const CoreTime& time) {
  bool has_changed = false;
  const auto changes =
      progress.slow_node_watch.compare(progress.stragglers, progress.rank_history, job, time.now);
  for (const SlowNodeWatch::Change& change : changes) {
    SlowNode* known = find_slow_node(job, change.worker);
    if (change.is_slow && (known != nullptr || has_room_for_slow_node(job))) {
      SlowNode node;
      node.worker = change.worker;
      node.incident =
          known != nullptr ? known->incident : incident_of(change, progress, job, incidents, time);
      node.unix_ns = time.unix_ns;
      node.is_only_reported = policy == SlowNodePolicy::kReport;
      node.revision = job.revision;
      node.nodes = nodes_now(job);
      node.step_seconds = progress.step_watch.seconds();
      node.excess_seconds = change.seconds - change.others;
      if (known != nullptr) {
        node.left_unix_ns = known->left_unix_ns;
        *known = std::move(node);
      } else {
        incidents.change(node.incident)->action = "none yet: it was confirmed just now";
        add_slow_node(job, std::move(node));
      }
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
  if (std::ranges::all_of(job.slow_nodes, &SlowNode::is_measured)) return false;
  const double seconds = progress.step_watch.seconds();
  if (seconds <= 0 || !progress.slow_node_watch.is_quiet(time.now)) return false;
  bool has_changed = false;
  for (SlowNode& node : job.slow_nodes) {
    if (node.is_measured || has_ranks_on(job, node.worker)) continue;
    const std::string text = measure_move(job, node, seconds);
    incidents.note(node.incident, time.unix_ns, text);
    if (Incident* incident = incidents.change(node.incident)) incident->action = text;
    incidents.close(node.incident);
    has_changed = true;
  }
  return has_changed;
}

}  // namespace muster::coordinator

#include "coordinator/core/recovery/avoidance.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/time/doubled.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/log_verdict.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

bool is_in_one_way(const Fault& a, const Fault& b) {
  return a.worker == b.worker && plain_cause_of(a) == plain_cause_of(b);
}

// Returns whether the rank ended in the same way on this node before, within kAvoidedFor, and no
// attempt has completed a step since.
bool failed_here_before(const Job& job, const Fault& fault) {
  for (size_t i = job.faults.size(); i > 0; --i) {
    const Fault& before = job.faults[i - 1];
    if (is_in_one_way(before, fault)) return fault.unix_ns - before.unix_ns < kAvoidedFor.count();
    if (before.last_step >= 0) return false;
  }
  return false;
}

// Returns whether the attempt that ended by `after` has brought the job further than `before`.
bool has_progress_between(const Fault& before, const Fault& after) {
  return after.job_step > before.job_step || after.checkpoint_step > before.checkpoint_step;
}

// Returns the number of unfit nodes in the newest faults before `fault`, without interruption and
// without progress between them.
int32_t unfit_nodes_in_a_row(const Job& job, const Fault& fault) {
  std::set<WorkerName> nodes;
  const Fault* after = &fault;
  for (size_t i = job.faults.size(); i > 0; --i) {
    const Fault& before = job.faults[i - 1];
    if (!before.node_unfit || has_progress_between(before, *after)) break;
    nodes.insert(before.worker);
    after = &before;
  }
  return static_cast<int32_t>(nodes.size());
}

// Returns whether faults[index] is a reason for the job to avoid its node.
bool counts_against_node(std::span<const Fault> faults, size_t index) {
  const Fault& fault = faults[index];
  if (fault.worker.value().empty() || is_preempted(fault)) return false;
  if (fault.node_unfit) return true;
  if (index == 0 || rule_of(plain_cause_of(fault)).passes) return false;
  const bool no_further = fault.last_step < 0 || fault.last_step == faults[index - 1].last_step;
  return no_further && is_in_one_way(faults[index - 1], fault);
}

struct Avoidance {
  int32_t times = 0;  // number of times that the avoidance began
  int64_t until_unix_ns = 0;
};

std::map<WorkerName, Avoidance> avoidances_of(std::span<const Fault> faults) {
  std::map<WorkerName, Avoidance> avoided;
  for (size_t i = 0; i < faults.size(); ++i) {
    const Fault& fault = faults[i];
    for (const WorkerName& name : fault.nodes_without_link) {
      int64_t& until = avoided[name].until_unix_ns;
      until = std::max(until, fault.unix_ns + Duration(kAvoidedFor).count());
    }
    if (!counts_against_node(faults, i)) continue;
    Avoidance& node = avoided[fault.worker];
    if (fault.node_unfit && fault.unix_ns >= node.until_unix_ns) ++node.times;
    const Duration time = doubled(kAvoidedFor, node.times - 1, kAvoidedMax);
    node.until_unix_ns = std::max(node.until_unix_ns, fault.unix_ns + time.count());
  }
  return avoided;
}

using Pair = std::pair<WorkerName, WorkerName>;

Pair pair_of(const Fault& fault) { return std::minmax(fault.worker, fault.peer); }

// Returns the pairs of nodes that cannot reach each other.
std::map<Pair, Avoidance> pairs_of(std::span<const Fault> faults) {
  std::map<Pair, Avoidance> pairs;
  for (const Fault& fault : faults) {
    if (fault.peer.value().empty()) continue;
    Avoidance& pair = pairs[pair_of(fault)];
    if (fault.unix_ns >= pair.until_unix_ns) ++pair.times;
    const Duration time = doubled(kPairAvoidedFor, pair.times - 1, kAvoidedMax);
    pair.until_unix_ns = std::max(pair.until_unix_ns, fault.unix_ns + time.count());
  }
  return pairs;
}

// Adds one node of each pair to `avoided`, with as few nodes as a greedy choice finds: the node of
// most pairs; of equal ones, the last by name.
void add_pairs(std::set<Pair> pairs, std::set<WorkerName>& avoided) {
  while (true) {
    std::erase_if(pairs, [&](const Pair& pair) {
      return avoided.contains(pair.first) || avoided.contains(pair.second);
    });
    std::map<WorkerName, int> degrees;
    for (const auto& [a, b] : pairs) {
      ++degrees[a];
      ++degrees[b];
    }
    if (degrees.empty()) return;
    const auto worst = std::ranges::max_element(
        degrees, {}, [](const auto& entry) { return std::pair(entry.second, entry.first); });
    avoided.insert(worst->first);
  }
}

}  // namespace

bool is_of_unfit_node(const Job& job, const Fault& fault, int32_t nodes_there) {
  const bool names_node = names_its_node(fault);
  // Failed hardware is failed on however many nodes it was found before. A failed switch takes the
  // links of many nodes.
  if (names_node && is_of_hardware(fault) && fault.family != kNetworkLinkLost)
    return nodes_there > 0;
  if (unfit_nodes_in_a_row(job, fault) >= std::min(kUnfitNodesMax, nodes_there)) return false;
  if (names_node) return true;
  if (fault.worker.value().empty() || fault.last_step >= 0 || !has_trained(fault)) return false;
  const Cause cause = plain_cause_of(fault);
  if (cause != Cause::kRankDied && cause != Cause::kHang && cause != Cause::kOutOfMemory &&
      cause != Cause::kNotExecutable && cause != Cause::kStorageAway)
    return false;
  // On fewer nodes each rank may need more memory, so the nodes are not the cause.
  if (cause == Cause::kOutOfMemory && nodes_now(job) < std::ssize(job.trained_on)) return false;
  const auto trained = std::ranges::find(job.trained_on, fault.worker);
  const bool is_new = !job.trained_on.empty() && trained == job.trained_on.end();
  // The job's program existed when the job trained: the node lacks it, or has lost its mount.
  return is_new || cause == Cause::kNotExecutable || failed_here_before(job, fault);
}

void note_training(Job& job) {
  job.trained_on = nodes_of(job.placement);
  const std::set<WorkerName> fit(job.trained_on.begin(), job.trained_on.end());
  for (Fault& fault : job.faults) {
    if (fit.contains(fault.worker)) fault.node_unfit = false;
    std::erase_if(fault.nodes_without_link,
                  [&](const WorkerName& name) { return fit.contains(name); });
  }
}

void add_fault(Job& job, Fault fault) {
  if (job.faults.size() >= kFaultsKeptMax) {
    // The faults of the newer half are always retained.
    const auto half = job.faults.begin() + kFaultsKeptMax / 2;
    const auto oldest =
        std::find_if(job.faults.begin(), half, [](const Fault& f) { return !f.node_unfit; });
    job.faults.erase(oldest == half ? job.faults.begin() : oldest);
  }
  job.faults.push_back(std::move(fault));
}

std::set<WorkerName> nodes_to_avoid(const Job& job, int64_t unix_ns) {
  std::set<WorkerName> avoided;
  for (const auto& [name, node] : avoidances_of(job.faults))
    if (unix_ns < node.until_unix_ns) avoided.insert(name);
  std::set<Pair> pairs;
  for (const auto& [pair, avoidance] : pairs_of(job.faults))
    if (unix_ns < avoidance.until_unix_ns) pairs.insert(pair);
  add_pairs(std::move(pairs), avoided);
  return avoided;
}

std::set<WorkerName> nodes_without_link(const Job& job, int64_t unix_ns) {
  std::set<WorkerName> nodes;
  for (const Fault& fault : job.faults)
    if (unix_ns < fault.unix_ns + Duration(kAvoidedFor).count())
      nodes.insert(fault.nodes_without_link.begin(), fault.nodes_without_link.end());
  return nodes;
}

bool was_avoided(const Job& job) {
  const Fault& fault = job.faults.back();
  const auto before = std::span(job.faults).first(job.faults.size() - 1);
  if (!fault.peer.value().empty()) {
    const auto pairs = pairs_of(before);
    const auto pair = pairs.find(pair_of(fault));
    return pair != pairs.end() && fault.unix_ns < pair->second.until_unix_ns;
  }
  const auto earlier = avoidances_of(before);
  const auto node = earlier.find(fault.worker);
  return fault.node_unfit && node != earlier.end() && fault.unix_ns < node->second.until_unix_ns;
}

std::string avoidance_text(const Job& job) {
  const Fault& fault = job.faults.back();
  if (!fault.peer.value().empty()) {
    const int64_t time = pairs_of(job.faults).at(pair_of(fault)).until_unix_ns - fault.unix_ns;
    constexpr int64_t kMinuteNs = Duration(std::chrono::minutes(1)).count();
    return absl::StrCat(", not on both ", fault.worker.value(), " and ", fault.peer.value(),
                        " for ", (time + kMinuteNs - 1) / kMinuteNs, " min if others are free");
  }
  if (const size_t nodes = fault.nodes_without_link.size(); nodes > 0)
    return absl::StrCat(", away from the ", nodes, " nodes for ",
                        kAvoidedFor / std::chrono::hours(1), " h if others are free");
  if (!fault.node_unfit) return "";
  constexpr int64_t kHourNs = Duration(std::chrono::hours(1)).count();
  const int64_t time = avoidances_of(job.faults).at(fault.worker).until_unix_ns - fault.unix_ns;
  return absl::StrCat(", away from ", fault.worker.value(), " for ", (time + kHourNs - 1) / kHourNs,
                      " h if others are free, because it is unfit");
}

}  // namespace muster::coordinator

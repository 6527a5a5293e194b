#include "coordinator/core/recovery/slow_nodes.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

// A start is seldom shorter, and its time may not be known.
constexpr Duration kMoveCostMin = std::chrono::seconds(30);
// The gain has to exceed the cost clearly, because both are estimates.
constexpr int kGainPerCost = 2;
// A smaller change of the median step is none.
constexpr double kGainMin = 0.03;

bool is_recent(const SlowNode& node, int64_t unix_ns) {
  return unix_ns < node.unix_ns + Duration(kSlowAvoidedFor).count();
}

bool has_ranks_on(const Job& job, const WorkerName& worker) {
  return std::ranges::any_of(job.placement,
                             [&](const RankPlacement& rank) { return rank.worker == worker; });
}

}  // namespace

std::vector<const SlowNode*> slow_nodes_in_use(const Job& job) {
  std::vector<const SlowNode*> nodes;
  for (const SlowNode& node : job.slow_nodes)
    if (!node.is_measured && has_ranks_on(job, node.worker)) nodes.push_back(&node);
  return nodes;
}

std::set<WorkerName> slow_nodes_to_avoid(const Job& job, int64_t unix_ns) {
  std::set<WorkerName> nodes;
  for (const SlowNode& node : job.slow_nodes)
    if (!node.was_in_vain && is_recent(node, unix_ns)) nodes.insert(node.worker);
  return nodes;
}

std::string_view why_no_move(const Job& job, int64_t unix_ns) {
  size_t moves = 0;
  for (const SlowNode& node : job.slow_nodes) {
    if (!node.is_measured || !is_recent(node, unix_ns)) continue;
    if (node.was_in_vain) return "an earlier move has not made the steps faster";
    ++moves;
  }
  return moves >= kSlowMovesMax ? "the job has moved too often" : "";
}

bool MoveEstimate::pays() const { return gain > kGainPerCost * cost; }

MoveEstimate estimate_move(const Job& job, int64_t newest_step, Duration trained, Duration start) {
  double save_seconds = 0;
  for (const RankState& rank : job.ranks)
    save_seconds = std::max(save_seconds, rank.checkpoints.seconds);
  MoveEstimate estimate;
  estimate.cost = std::max(kMoveCostMin, start) +
                  std::chrono::duration_cast<Duration>(std::chrono::duration<double>(save_seconds));
  // The slowest node determines the time of the others.
  double excess = 0, step = 0;
  for (const SlowNode* node : slow_nodes_in_use(job)) {
    if (excess == 0 || node->excess_seconds < excess) excess = node->excess_seconds;
    step = node->step_seconds;
  }
  double steps = static_cast<double>(std::max<int64_t>(job.spec.steps - newest_step, 0));
  if (job.spec.steps <= 0 && step > 0)
    steps = std::chrono::duration<double>(trained).count() / step;
  estimate.gain = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
      std::min(steps * excess, std::chrono::duration<double>(kSlowAvoidedFor).count() * 365)));
  return estimate;
}

void add_slow_node(Job& job, SlowNode node) {
  forget_slow_node(job, node.worker);
  if (job.slow_nodes.size() >= kSlowNodesKeptMax) job.slow_nodes.erase(job.slow_nodes.begin());
  job.slow_nodes.push_back(std::move(node));
}

void forget_slow_node(Job& job, const WorkerName& worker) {
  std::erase_if(job.slow_nodes, [&](const SlowNode& node) { return node.worker == worker; });
}

bool has_left_slow_node(const Job& job) {
  if (job.faults.empty() || !job.faults.back().is_planned) return false;
  return std::ranges::any_of(job.slow_nodes, [&](const SlowNode& node) {
    return !node.is_measured && node.worker == job.faults.back().worker;
  });
}

std::string measure_move(SlowNode& node, int32_t nodes, double step_seconds) {
  node.is_measured = true;
  if (nodes != node.nodes)
    return absl::StrCat("the job has left ", node.worker.value(), ", and runs on ", nodes,
                        " nodes instead of ", node.nodes, ", so that its steps are not comparable");
  node.was_in_vain = step_seconds > (1 - kGainMin) * node.step_seconds;
  return absl::StrCat(
      absl::StrFormat("without %s, a step takes %.3g s, and took %.3g s before (%+.0f%%)",
                      node.worker.value(), step_seconds, node.step_seconds,
                      100 * (step_seconds / node.step_seconds - 1)),
      node.was_in_vain ? ": the node was not the cause, and the job leaves no node for 24 h" : "");
}

}  // namespace muster::coordinator

#include "coordinator/core/recovery/slow_nodes.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace muster::coordinator {
namespace {

// A start is seldom shorter, and its time may not be known.
constexpr Duration kMoveCostMin = std::chrono::seconds(30);
// The gain has to exceed the cost clearly, because both are estimates.
constexpr int kGainPerCost = 2;
// A smaller change of the median step is none.
constexpr double kGainMin = 0.03;
// Steps of the future may differ; this bounds the gain.
constexpr double kGainMaxSeconds = 365 * 86'400.0;

}  // namespace

std::set<WorkerName> slow_nodes_to_avoid(const Job& job, int64_t unix_ns) {
  std::set<WorkerName> nodes;
  for (const SlowNode& node : job.slow_nodes)
    if (!node.was_in_vain && !node.is_only_reported && is_recent(node, unix_ns))
      nodes.insert(node.worker);
  return nodes;
}

std::string_view why_stays(const Job& job, const std::vector<SlowNode>& slow, int64_t unix_ns) {
  const auto was_left = [&](const SlowNode& node) {
    return node.left_unix_ns != 0 &&
           unix_ns < node.left_unix_ns + kSlowAvoidedFor / std::chrono::nanoseconds(1);
  };
  if (std::ranges::any_of(slow, was_left))
    return "it has left the node before, and was placed there again";
  size_t moves = 0;
  for (const SlowNode& node : job.slow_nodes) {
    if (node.was_in_vain && is_recent(node, unix_ns))
      return "an earlier move has not made the steps faster";
    moves += was_left(node) ? 1 : 0;
  }
  return moves >= kSlowMovesMax ? "the job has moved too often" : "";
}

bool MoveEstimate::pays() const { return gain > kGainPerCost * cost; }

MoveEstimate estimate_move(const Job& job, const std::vector<SlowNode>& slow, int64_t newest_step,
                           Duration trained, Duration start) {
  using Seconds = std::chrono::duration<double>;
  double save_seconds = 0;
  for (const RankState& rank : job.ranks)
    save_seconds = std::max(save_seconds, rank.checkpoints.seconds);
  MoveEstimate estimate;
  estimate.cost =
      std::max(kMoveCostMin, start) + std::chrono::duration_cast<Duration>(Seconds(save_seconds));
  // Without the slowest node, the job waits for the others of them.
  double excess = 0, step = 0;
  for (const SlowNode& node : slow) {
    if (excess == 0 || node.excess_seconds < excess) excess = node.excess_seconds;
    step = node.step_seconds;
  }
  double steps = static_cast<double>(std::max<int64_t>(job.spec.steps - newest_step, 0));
  if (job.spec.steps <= 0 && step > 0) steps = Seconds(trained).count() / step;
  estimate.gain =
      std::chrono::duration_cast<Duration>(Seconds(std::min(steps * excess, kGainMaxSeconds)));
  return estimate;
}

bool has_room_for_slow_node(const Job& job) {
  return std::ranges::count(job.slow_nodes, false, &SlowNode::is_measured) <
         static_cast<std::ptrdiff_t>(kSlowNodesKeptMax);
}

void add_slow_node(Job& job, SlowNode node) {
  if (job.slow_nodes.size() >= kSlowNodesKeptMax)
    job.slow_nodes.erase(std::ranges::find(job.slow_nodes, true, &SlowNode::is_measured));
  job.slow_nodes.push_back(std::move(node));
}

SlowNode* find_slow_node(Job& job, const WorkerName& worker) {
  const SlowNode* found = unmeasured_slow_node(job, worker);
  return found == nullptr ? nullptr : job.slow_nodes.data() + (found - job.slow_nodes.data());
}

void forget_slow_node(Job& job, const WorkerName& worker) {
  std::erase_if(job.slow_nodes,
                [&](const SlowNode& node) { return node.worker == worker && !node.is_measured; });
}

bool has_left_slow_node(const Job& job) {
  if (job.faults.empty() || !job.faults.back().is_planned) return false;
  return std::ranges::any_of(job.slow_nodes, [&](const SlowNode& node) {
    return node.left_unix_ns != 0 && !node.is_measured && node.worker == job.faults.back().worker;
  });
}

std::string measure_move(const Job& job, SlowNode& node, double step_seconds) {
  node.is_measured = true;
  if (nodes_now(job) != node.nodes || job.revision != node.revision || node.step_seconds <= 0)
    return absl::StrCat("the job runs without ", node.worker.value(),
                        "; its steps are not comparable with the earlier ones");
  node.was_in_vain = step_seconds > (1 - kGainMin) * node.step_seconds;
  return absl::StrCat(
      absl::StrFormat("without %s, a step takes %.3g s, and took %.3g s before (%+.0f%%)",
                      node.worker.value(), step_seconds, node.step_seconds,
                      100 * (step_seconds / node.step_seconds - 1)),
      node.was_in_vain ? ": the node was not the cause, and the job leaves no node for 24 h" : "");
}

}  // namespace muster::coordinator

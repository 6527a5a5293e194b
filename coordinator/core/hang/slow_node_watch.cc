#include "coordinator/core/hang/slow_node_watch.h"

#include <algorithm>
#include <utility>

namespace muster::coordinator {
namespace {

constexpr double kNodeRatio = 1.15;
constexpr double kNodeOverRatio = 1.08;
// Samples of main threads have a larger error.
constexpr double kSampledNodeRatio = 1.4;
constexpr double kSampledNodeOverRatio = 1.2;
// The share of the excess by which the rank has to compute longer than before.
constexpr double kBecameSlow = 0.5;
constexpr int32_t kEvaluationsMin = 5;
constexpr size_t kNodesPerSlowOne = 4;

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::map<WorkerName, SlowNodeWatch::Change> SlowNodeWatch::over_limit(const Stragglers& stragglers,
                                                                      const RankHistory& history,
                                                                      const Job& job) const {
  std::map<WorkerName, Change> over;
  const bool is_sampled = stragglers.source() == Stragglers::Source::kSamples;
  const int32_t per_node = job.spec.ranks_per_node;
  const auto own = [&](size_t rank) { return stragglers.own(rank); };
  for (int32_t local = 0; local < per_node; ++local) {
    std::vector<double> computes, waits;
    for (auto rank = static_cast<size_t>(local); rank < job.placement.size();
         rank += static_cast<size_t>(per_node)) {
      computes.push_back(own(rank).compute);
      waits.push_back(own(rank).wait);
    }
    if (computes.size() < 2) return over;
    const double typical = lower_median(std::move(computes));
    std::ranges::sort(waits);
    const double wait = waits[waits.size() / 2];
    for (auto rank = static_cast<size_t>(local); rank < job.placement.size();
         rank += static_cast<size_t>(per_node)) {
      const WorkerName& worker = job.placement[rank].worker;
      const auto known = nodes_.find(worker);
      const bool was_slow = known != nodes_.end() && known->second.is_confirmed;
      const double ratio = is_sampled ? (was_slow ? kSampledNodeOverRatio : kSampledNodeRatio)
                           : was_slow ? kNodeOverRatio
                                      : kNodeRatio;
      const double excess = own(rank).compute - typical;
      const bool others_wait = own(rank).wait <= wait && wait >= excess / 2;
      if (own(rank).compute <= ratio * typical || !others_wait) continue;
      const auto before = history.before(stragglers, rank);
      const bool is_known = was_slow || std::ranges::any_of(job.slow_nodes, [&](const SlowNode& n) {
                              return n.worker == worker && !n.was_in_vain;
                            });
      if (!is_known && (!before || own(rank).compute - before->compute < kBecameSlow * excess))
        continue;
      Change& worst = over[worker];
      if (excess <= worst.seconds - worst.typical) continue;
      worst = {worker, true, Rank(static_cast<int32_t>(rank)), own(rank).compute, typical};
    }
  }
  return over;
}

std::vector<SlowNodeWatch::Change> SlowNodeWatch::compare(const Stragglers& stragglers,
                                                          const RankHistory& history,
                                                          const Job& job, Instant now) {
  if (stragglers.source() == Stragglers::Source::kNone) return {};
  std::map<WorkerName, Change> over = over_limit(stragglers, history, job);
  const size_t nodes = job.placement.size() / static_cast<size_t>(job.spec.ranks_per_node);
  // The work is distributed unevenly, or the nodes share a cause that the job cannot leave.
  if (over.size() > std::max<size_t>(1, nodes / kNodesPerSlowOne)) over.clear();
  for (const auto& [worker, change] : over) nodes_.try_emplace(worker);

  std::vector<Change> changes;
  for (auto entry = nodes_.begin(); entry != nodes_.end();) {
    auto& [worker, node] = *entry;
    const auto found = over.find(worker);
    const bool is_over = found != over.end();
    if (node.evaluations == 0 || is_over != node.is_over)
      node = {is_over, node.is_confirmed, 0, now};
    ++node.evaluations;
    if (node.is_confirmed || (is_over && now - node.since >= window_ / 2)) newest_ = now;
    const bool lasts = node.evaluations >= kEvaluationsMin && now - node.since >= window_;
    if (lasts && is_over && !node.is_confirmed) changes.push_back(found->second);
    if (lasts && !is_over && node.is_confirmed) changes.push_back({.worker = worker});
    if (lasts) node.is_confirmed = is_over;
    const bool is_over_with = !node.is_confirmed && !is_over;
    entry = is_over_with ? nodes_.erase(entry) : std::next(entry);
  }
  return changes;
}

bool SlowNodeWatch::is_quiet(Instant now) const {
  return !newest_ || now - *newest_ >= 2 * window_;
}

bool SlowNodeWatch::is_slow(const WorkerName& worker) const {
  const auto found = nodes_.find(worker);
  return found != nodes_.end() && found->second.is_confirmed;
}

}  // namespace muster::coordinator

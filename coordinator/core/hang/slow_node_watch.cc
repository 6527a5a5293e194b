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

// Returns the ratio of the median `typical` of the ranks with this local number to their earlier
// one.
double growth_of_typical(double typical, size_t local, const RankHistory& history, const Job& job) {
  std::vector<double> before;
  const auto per_node = static_cast<size_t>(job.spec.ranks_per_node);
  for (size_t rank = local; rank < job.placement.size(); rank += per_node)
    before.push_back(history.before(rank, &Stragglers::Own::compute));
  const double typical_before = lower_median(std::move(before));
  return typical_before > 0 ? typical / typical_before : 1;
}

}  // namespace

std::map<WorkerName, SlowNodeWatch::Change> SlowNodeWatch::over_limit(const Stragglers& stragglers,
                                                                      const RankHistory& history,
                                                                      const Job& job) const {
  const bool is_sampled = stragglers.source() == Stragglers::Source::kSamples;
  const auto per_node = static_cast<size_t>(job.spec.ranks_per_node);
  // The ranks that compute longer than those of the same number, by node.
  std::map<WorkerName, std::vector<Slower>> slower;
  for (size_t local = 0; local < per_node; ++local) {
    std::vector<double> computes, waits;
    for (size_t rank = local; rank < job.placement.size(); rank += per_node) {
      computes.push_back(stragglers.own(rank).compute);
      waits.push_back(stragglers.own(rank).wait);
    }
    if (computes.size() < 2) return {};
    const double typical = lower_median(std::move(computes));
    std::ranges::sort(waits);
    const double wait = waits[waits.size() / 2];
    // Steps that process more tokens than before take longer on all nodes. Only ranks over the
    // limit need this.
    std::optional<double> growth;
    for (size_t rank = local; rank < job.placement.size(); rank += per_node) {
      const Stragglers::Own own = stragglers.own(rank);
      const WorkerName& worker = job.placement[rank].worker;
      const bool others_wait = own.wait <= wait && wait >= (own.compute - typical) / 2;
      const bool may_be_slow = !is_sampled || own.compute >= kNeverWaits * (own.compute + own.wait);
      if (own.compute <= limit_of(worker, is_sampled) * typical || !others_wait || !may_be_slow)
        continue;
      if (!is_slow(worker) && unmeasured_slow_node(job, worker) == nullptr) {
        if (!history.is_known(stragglers)) continue;
        if (!growth) growth = growth_of_typical(typical, local, history, job);
        const double before = *growth * history.before(rank, &Stragglers::Own::compute);
        if (own.compute - before < kBecameSlow * (own.compute - typical)) continue;
      }
      slower[worker].push_back({rank, own.compute, typical});
    }
  }
  // The longest time on the other nodes: without the slower ones, a step would still take as long.
  double rest = 0;
  for (size_t rank = 0; rank < job.placement.size(); ++rank)
    if (!slower.contains(job.placement[rank].worker))
      rest = std::max(rest, stragglers.own(rank).compute);

  std::map<WorkerName, Change> over;
  for (const auto& [worker, ranks] : slower) {
    for (const Slower& rank : ranks) {
      const double others = std::max(rank.typical, rest);
      if (rank.compute <= limit_of(worker, is_sampled) * others) continue;
      Change& worst = over[worker];
      if (rank.compute - others <= worst.seconds - worst.others) continue;
      worst = {worker, true, Rank(static_cast<int32_t>(rank.rank)), rank.compute, others};
    }
  }
  return over;
}

double SlowNodeWatch::limit_of(const WorkerName& worker, bool is_sampled) const {
  if (is_slow(worker)) return is_sampled ? kSampledNodeOverRatio : kNodeOverRatio;
  return is_sampled ? kSampledNodeRatio : kNodeRatio;
}

std::vector<SlowNodeWatch::Change> SlowNodeWatch::compare(const Stragglers& stragglers,
                                                          const RankHistory& history,
                                                          const Job& job, Instant now) {
  if (stragglers.source() == Stragglers::Source::kNone) return {};
  if (evaluations_++ == 0) began_ = now;
  std::map<WorkerName, Change> over = over_limit(stragglers, history, job);
  const size_t nodes = job.placement.size() / static_cast<size_t>(job.spec.ranks_per_node);
  // The work is distributed unevenly, or the nodes share a cause that the job cannot leave.
  if (over.size() > std::max<size_t>(1, nodes / kNodesPerSlowOne))
    std::erase_if(over, [this](const auto& entry) { return !is_slow(entry.first); });
  for (const auto& [worker, change] : over) nodes_.try_emplace(worker);
  // Nodes that an earlier attempt, or this one before a restart of the coordinator, has confirmed.
  for (const SlowNode& node : job.slow_nodes)
    if (!node.is_measured && has_ranks_on(job, node.worker)) nodes_.try_emplace(node.worker);

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
    const bool is_recorded = unmeasured_slow_node(job, worker) != nullptr;
    if (lasts && !is_over && is_recorded) changes.push_back({.worker = worker});
    if (lasts) node.is_confirmed = is_over;
    const bool is_needed = is_over || (is_recorded && !lasts);
    entry = is_needed || node.is_confirmed ? std::next(entry) : nodes_.erase(entry);
  }
  return changes;
}

bool SlowNodeWatch::is_quiet(Instant now) const {
  return evaluations_ >= kEvaluationsMin && now - began_ >= window_ &&
         (!newest_ || now - *newest_ >= 2 * window_);
}

bool SlowNodeWatch::is_slow(const WorkerName& worker) const {
  const auto found = nodes_.find(worker);
  return found != nodes_.end() && found->second.is_confirmed;
}

}  // namespace muster::coordinator

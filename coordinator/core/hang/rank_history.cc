#include "coordinator/core/hang/rank_history.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "coordinator/core/hang/median.h"

namespace muster::coordinator {
namespace {

// As many as the windows of StepWatch's history.
constexpr size_t kRankTimesMax = 12;
// A rank explains slower steps if its own part has grown by at least this share of the difference.
constexpr double kExplainedShare = 0.5;
constexpr size_t kExplainedMax = 3;
// The confidence that the named ranks are a cause.
constexpr double kExplainedConfidence = 0.9;

struct GrownRank {
  const RankPlacement* place = nullptr;
  bool is_data = false;
  double before = 0;
  double seconds = 0;

  double growth() const { return seconds - before; }
};

std::string why_text(const GrownRank& rank, std::string_view which) {
  return rank.is_data
             ? absl::StrFormat("waits %.3g s a step for its data%s, and waited %.3g s before",
                               rank.seconds, which, rank.before)
             : absl::StrFormat("computes %.3g s a step%s, and computed %.3g s before", rank.seconds,
                               which, rank.before);
}

}  // namespace

void RankHistory::remember(const Stragglers& stragglers) {
  if (stragglers.source() == Stragglers::Source::kNone) return;
  if (stragglers.source() != source_)
    for (std::vector<Stragglers::Own>& times : times_) times.clear();
  source_ = stragglers.source();
  if (times_.empty() || times_.front().size() >= kRankTimesMax) return;
  for (size_t i = 0; i < times_.size(); ++i) times_[i].push_back(stragglers.own(i));
}

bool RankHistory::is_known(const Stragglers& stragglers) const {
  return !times_.empty() && !times_.front().empty() && stragglers.source() == source_;
}

double RankHistory::before(size_t rank, double Stragglers::Own::*time) const {
  std::vector<double> values;
  for (const Stragglers::Own& own : times_[rank]) values.push_back(own.*time);
  return median_of(values, Middle::kUpper);
}

RankHistory::Explanation RankHistory::explain(const Stragglers& stragglers, const Job& job,
                                              const StepFinding& finding) const {
  Explanation result;
  if (!is_known(stragglers)) return result;
  result.is_known = true;
  // The own times of such ranks contain their waits for other ranks.
  if (source_ == Stragglers::Source::kWaits && !finding.part_is_known) return result;
  const double excess = finding.seconds - finding.reference_seconds;
  std::vector<GrownRank> grown;
  for (const RankPlacement& place : job.placement) {
    const auto index = static_cast<size_t>(place.rank.value());
    const Stragglers::Own now = stragglers.own(index);
    const GrownRank compute{&place, false,
                            finding.growth * before(index, &Stragglers::Own::compute), now.compute};
    const GrownRank data{&place, true, finding.growth * before(index, &Stragglers::Own::data),
                         now.data};
    const GrownRank& more = data.growth() > compute.growth() ? data : compute;
    if (more.growth() >= kExplainedShare * excess) grown.push_back(more);
  }
  std::ranges::stable_sort(grown, std::greater<>(), &GrownRank::growth);
  const bool are_most = 2 * grown.size() > job.placement.size();
  const bool are_waits = source_ == Stragglers::Source::kWaits;
  if (grown.empty() && are_waits)
    result.clause = "no rank computes longer or waits longer for its data than before";
  // Samples show the main thread of a rank that polls for its peers as one that computes.
  if (are_most && are_waits) {
    const GrownRank& middle = grown[grown.size() / 2];
    result.clause = absl::StrCat(grown.size(), " of ", job.placement.size(),
                                 " ranks take longer: a typical one ", why_text(middle, ""));
  }
  if (grown.empty() || are_most) return result;

  std::map<WorkerName, size_t> placed, slower;
  for (const RankPlacement& place : job.placement) ++placed[place.worker];
  for (const GrownRank& rank : grown) ++slower[rank.place->worker];
  std::set<WorkerName> named;
  for (const GrownRank& rank : grown) {
    if (result.suspects.size() == kExplainedMax) break;
    const WorkerName& worker = rank.place->worker;
    const size_t count = slower[worker];
    const bool is_node = count > 1 && 2 * count > placed[worker];
    if (is_node && !named.insert(worker).second) continue;
    Suspect& suspect = result.suspects.emplace_back();
    suspect.worker = worker;
    if (!is_node) suspect.rank = rank.place->rank;
    const std::string which =
        is_node ? absl::StrFormat(" on %d of its %d ranks", count, placed[worker]) : "";
    suspect.why = why_text(rank, which);
  }
  for (Suspect& suspect : result.suspects)
    suspect.confidence = kExplainedConfidence / static_cast<double>(result.suspects.size());
  return result;
}

}  // namespace muster::coordinator

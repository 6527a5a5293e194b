#include "coordinator/core/hang/stragglers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "coordinator/core/hang/median.h"

namespace muster::coordinator {
namespace {

// The first steps of an attempt warm up, differently on each rank.
constexpr uint64_t kRankWarmUpSteps = 2;
constexpr uint64_t kWindowSteps = 10;
constexpr size_t kWindowSamples = 4;  // the minimum, if steps are shorter than heartbeats
constexpr size_t kSamplesMax = 64;
constexpr uint64_t kStepsBetweenLooks = 5;
constexpr double kSlowRatio = 1.3;
constexpr double kOverRatio = 1.15;
constexpr double kScoreMin = 4;
constexpr double kSpreadMin = 0.02;  // fraction of the median; clocks and caches differ by as much
// Two or three ranks do not show what is typical.
constexpr size_t kScoredRanks = 4;
constexpr double kSlowRatioOfFew = 1.4;
constexpr double kDataShare = 0.25;  // fraction of the step
constexpr double kDataRatio = 3;
constexpr int32_t kSamplesToReport = 3;
constexpr int32_t kSamplesToEnd = 2;
constexpr Duration kTimeToReport = std::chrono::seconds(4);
constexpr size_t kSlowShare = 4;  // at most one in this many ranks
// At four samples a second, 30 s. The deviation of a share is then below 0.05, so that neither
// bound below is reached by chance.
constexpr uint64_t kMainThreadSamples = 120;
constexpr double kSampledRatio = 1.6;
constexpr double kSampledOverRatio = 1.3;

// Values of one rank's steps. On the stack, because a job may have 100,000 ranks.
class StepValues {
 public:
  void add(double value) { values_[count_++] = value; }
  double median() { return median_of(std::span(values_).first(count_)); }

 private:
  std::array<double, kSamplesMax> values_;
  size_t count_ = 0;
};

}  // namespace

void Stragglers::observe(size_t index, const Sample& sample) {
  Rank& rank = ranks_[index];
  const bool sane = std::isfinite(sample.seconds) && std::isfinite(sample.collective_wait) &&
                    std::isfinite(sample.data_wait);
  if (rank.ended || !sane || sample.steps <= kRankWarmUpSteps) return;
  if (rank.begin.count == 0 || sample.main_thread.count < rank.begin.count)
    rank.begin = sample.main_thread;
  const uint64_t taken = sample.main_thread.count - rank.begin.count;
  if (taken >= kMainThreadSamples) {
    rank.awake_share = static_cast<double>(sample.main_thread.awake - rank.begin.awake) /
                       static_cast<double>(taken);
    rank.begin = sample.main_thread;
  }
  std::vector<Sample>& samples = rank.samples;
  if (!samples.empty() && sample.steps <= samples.back().steps) return;
  samples.push_back(sample);
  const uint64_t begin = sample.steps - std::min(sample.steps, kWindowSteps);
  while (samples.size() > kWindowSamples + 1 &&
         (samples[1].steps <= begin || samples.size() > kSamplesMax)) {
    samples.erase(samples.begin());
  }
  if (!rank.ready && sample.steps >= next_sample_ && samples.size() > 1) {
    rank.ready = true;
    ++ready_;
  }
}

void Stragglers::forget(size_t index) {
  Rank& rank = ranks_[index];
  if (rank.ended) return;
  rank.ended = true;
  --left_;
  ready_ -= rank.ready ? 1 : 0;
}

Stragglers::Times Stragglers::times_of(size_t index, const Rank& rank) {
  StepValues own, data, wait, step;
  for (size_t i = 1; i < rank.samples.size(); ++i) {
    const Sample& a = rank.samples[i - 1];
    const Sample& b = rank.samples[i];
    const auto steps = static_cast<double>(b.steps - a.steps);
    const double seconds = (b.seconds - a.seconds) / steps;
    const double waited = (b.collective_wait - a.collective_wait) / steps;
    const double read = (b.data_wait - a.data_wait) / steps;
    step.add(seconds);
    wait.add(waited);
    data.add(read);
    own.add(std::max(0.0, seconds - waited - read));
  }
  return {index, own.median(), data.median(), wait.median(), step.median()};
}

bool Stragglers::take_samples(std::vector<Times>& all) const {
  for (const Times& times : all) {
    const Sample& newest = ranks_[times.rank].samples.back();
    if (newest.collective_wait > 0 || newest.data_wait > 0 || ranks_[times.rank].awake_share < 0)
      return false;
  }
  for (Times& times : all) {
    times.own = times.step * ranks_[times.rank].awake_share;
    times.wait = times.step - times.own;
  }
  return true;
}

SlowKind Stragglers::judge(const Times& times, const Times& median, double spread, double ratio) {
  const double excess = times.own - median.own;
  const bool apart = spread == 0 || kMadOfNormal * excess / spread >= kScoreMin;
  const bool others_wait = times.wait <= median.wait && median.wait >= excess / 2;
  if (times.own >= ratio * median.own && apart && others_wait) return SlowKind::kCompute;
  const double more = times.data - median.data;
  if (times.data >= kDataShare * times.step && times.data >= kDataRatio * median.data &&
      times.wait <= median.wait && median.wait >= more / 2) {
    return SlowKind::kData;
  }
  return SlowKind::kNone;
}

std::vector<Stragglers::Change> Stragglers::evaluate(Instant now) {
  std::vector<Times> all;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.ended) continue;
    all.push_back(times_of(i, rank));
    rank.ready = false;
    next_sample_ = std::max(next_sample_, rank.samples.back().steps);
  }
  next_sample_ += kStepsBetweenLooks;
  const bool is_sampled = take_samples(all);
  const bool has_waits =
      std::ranges::any_of(all, [](const Times& times) { return times.wait > 0 || times.data > 0; });
  source_ = is_sampled ? Source::kSamples : has_waits ? Source::kWaits : Source::kNone;
  ready_ = 0;
  // If two ranks differ, the faster rank counts as typical, because it is the rank that waits.
  const auto median_by = [&](double Times::*field, Middle which = Middle::kLower) {
    std::vector<double> values;
    for (const Times& times : all) values.push_back(times.*field);
    return median_of(values, which);
  };
  const Times median{0, median_by(&Times::own), median_by(&Times::data),
                     median_by(&Times::wait, Middle::kUpper), median_by(&Times::step)};
  for (const Times& times : all) {
    ranks_[times.rank].score = median.own > 0 ? times.own / median.own : 0;
    ranks_[times.rank].own = {times.own, times.data, times.wait};
  }
  std::vector<double> distances;
  for (const Times& times : all) distances.push_back(std::abs(times.own - median.own));
  const bool scored = all.size() >= kScoredRanks;
  const double spread = scored ? std::max(median_of(distances), kSpreadMin * median.own) : 0;

  std::vector<SlowKind> kinds;
  size_t slow = 0;
  for (const Times& times : all) {
    const bool reported = ranks_[times.rank].reported != SlowKind::kNone;
    const double ratio = is_sampled ? (reported ? kSampledOverRatio : kSampledRatio)
                         : reported ? kOverRatio
                         : scored   ? kSlowRatio
                                    : kSlowRatioOfFew;
    const bool may_be_slow = !is_sampled || times.own >= kNeverWaits * times.step;
    kinds.push_back(may_be_slow ? judge(times, median, reported ? 0 : spread, ratio)
                                : SlowKind::kNone);
    slow += kinds.back() == SlowKind::kNone ? 0 : 1;
  }
  const bool uneven = slow > std::max<size_t>(1, all.size() / kSlowShare);

  std::vector<Change> changes;
  for (size_t i = 0; i < all.size(); ++i) {
    Rank& rank = ranks_[all[i].rank];
    const SlowKind kind = uneven ? SlowKind::kNone : kinds[i];
    if (kind != rank.seen) {
      rank.seen = kind;
      rank.samples_seen = 0;
      rank.since = now;
    }
    ++rank.samples_seen;
    if (kind == rank.reported) continue;
    const bool lasts = kind == SlowKind::kNone ? rank.samples_seen >= kSamplesToEnd
                                               : rank.samples_seen >= kSamplesToReport &&
                                                     now - rank.since >= kTimeToReport;
    if (!lasts) continue;
    rank.reported = kind;
    const bool data = kind == SlowKind::kData;
    changes.push_back(
        {all[i].rank, kind, data ? all[i].data : all[i].own, data ? median.data : median.own});
  }
  return changes;
}

}  // namespace muster::coordinator

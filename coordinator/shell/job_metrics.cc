#include "coordinator/shell/job_metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#include <absl/strings/ascii.h>

#include "common/absl_view.h"
#include "coordinator/shell/metric_label.h"
#include "daemon/metric_families.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {
namespace {

using daemon::counters;
using daemon::gauges;
using daemon::histograms;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

// A loss that begins is shown as 0 for so long: at least one scrape of everybody's.
constexpr Duration kZeroShown = std::chrono::minutes(1);

// Between two looks for room: thousands of jobs without series have a heartbeat each second.
constexpr Duration kLookPeriod = std::chrono::seconds(1);

// Seconds: a dead rank is told at once, a hang after some steps, a slow start after minutes.
constexpr std::array<double, 9> kDetectionBounds = {0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};

template <class T>
void remove_from(Family<T>& family, T* metric) {
  if (metric != nullptr) family.Remove(metric);
}

// `gauge` is null until there was a value.
void set(Family<Gauge>& family, const daemon::MetricLabels& labels, Gauge*& gauge, double value) {
  if (gauge == nullptr) gauge = &family.Add(labels);
  gauge->Set(value);
}

std::string state_label(JobState state) { return absl::AsciiStrToLower(av(job_state_name(state))); }

// The account is older than what an earlier life of the coordinator has shown until rank 0 has said what it did since: a counter that goes
// back is taken for one that began anew.
bool is_accounted(const Job& job) {
  return !is_running(job.state) || job.ranks.empty() ||
         job.ranks.front().life != RankState::Life::kAssigned;
}

// The job whose rank 0 this is about, if it runs where the heartbeat comes from.
const Job* owner_of_rank_0(const Core& core, const HeartbeatReceived& heartbeat,
                           const RankProgress& progress) {
  if (progress.rank != Rank(0)) return nullptr;
  const auto it = core.jobs().find(progress.job);
  if (it == core.jobs().end()) return nullptr;
  const Job& job = it->second;
  const bool current = is_live(job.state) && job.attempt == progress.attempt &&
                       !job.placement.empty() && job.placement[0].worker == heartbeat.worker &&
                       job.placement[0].incarnation == heartbeat.incarnation;
  return current ? &job : nullptr;
}

}  // namespace

struct JobMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : jobs(gauges<"muster_jobs">(registry)),
        without_series(gauges<"muster_jobs_without_series">(registry)),
        state(gauges<"muster_job_state">(registry)),
        started(gauges<"muster_job_start_timestamp_seconds">(registry)),
        attempt(gauges<"muster_job_attempt">(registry)),
        ranks(gauges<"muster_job_ranks">(registry)),
        step(gauges<"muster_job_step">(registry)),
        tokens(gauges<"muster_job_tokens_per_second">(registry)),
        mfu(gauges<"muster_job_mfu_ratio">(registry)),
        loss(gauges<"muster_job_loss">(registry)),
        grad_norm(gauges<"muster_job_grad_norm">(registry)),
        step_seconds(histograms<"muster_job_step_seconds">(registry)),
        restarts(counters<"muster_job_restarts_total">(registry)),
        checkpoint_step(gauges<"muster_job_checkpoint_step">(registry)),
        checkpoint_time(gauges<"muster_job_checkpoint_timestamp_seconds">(registry)),
        suspect(gauges<"muster_job_suspect">(registry)),
        straggler(gauges<"muster_job_straggler_score">(registry)),
        incidents(counters<"muster_job_incidents_total">(registry)),
        detection(histograms<"muster_job_detection_seconds">(registry)),
        accounted(counters<"muster_job_accounted_seconds_total">(registry)),
        productive(counters<"muster_job_productive_seconds_total">(registry)),
        lost(counters<"muster_job_lost_seconds_total">(registry)),
        goodput(gauges<"muster_job_goodput_ratio">(registry)) {}

  Family<Gauge>& jobs;
  Family<Gauge>& without_series;
  Family<Gauge>& state;
  Family<Gauge>& started;
  Family<Gauge>& attempt;
  Family<Gauge>& ranks;
  Family<Gauge>& step;
  Family<Gauge>& tokens;
  Family<Gauge>& mfu;
  Family<Gauge>& loss;
  Family<Gauge>& grad_norm;
  Family<Histogram>& step_seconds;
  Family<Counter>& restarts;
  Family<Gauge>& checkpoint_step;
  Family<Gauge>& checkpoint_time;
  Family<Gauge>& suspect;
  Family<Gauge>& straggler;
  Family<Counter>& incidents;
  Family<Histogram>& detection;
  Family<Counter>& accounted;
  Family<Counter>& productive;
  Family<Counter>& lost;
  Family<Gauge>& goodput;
};

struct JobMetrics::Series {
  daemon::MetricLabels labels;
  JobState shown_state = JobState::kQueued;
  Gauge* state = nullptr;
  Gauge* started = nullptr;
  Gauge* attempt = nullptr;
  Gauge* ranks = nullptr;
  Counter* restarts = nullptr;
  Gauge* suspect = nullptr;
  Histogram* detection = nullptr;  // null until there was an incident
  std::map<IncidentKind, Counter*> incidents;
  std::map<Rank, Gauge*> stragglers;  // the slowest ranks
  Histogram* step_seconds = nullptr;
  // Null until it is known where the time went.
  Counter* accounted = nullptr;
  Counter* productive = nullptr;
  Gauge* goodput = nullptr;
  struct Lost {
    Counter* counter = nullptr;
    Instant zero_until{};
  };
  std::map<std::pair<size_t, size_t>, Lost> lost;  // by cause and class, once there was any
  bool saves = false;                              // it has said that it takes checkpoints
  Gauge* checkpoint_step = nullptr;
  Gauge* checkpoint_time = nullptr;
  // Null until rank 0 has completed a step.
  Gauge* step = nullptr;
  Gauge* loss = nullptr;
  Gauge* grad_norm = nullptr;
  // Null until it has in this attempt: between attempts there is no speed, and 0 would be one to every mean.
  Gauge* tokens = nullptr;
  Gauge* mfu = nullptr;  // … and the device's peak is known
  Attempt counted_attempt{0};
  StepTimes counted;  // what step_seconds has of that attempt
};

JobMetrics::JobMetrics(prometheus::Registry& registry, int32_t shown)
    : shown_(static_cast<size_t>(std::max(shown, 0))),
      families_(std::make_unique<Families>(registry)) {}

JobMetrics::~JobMetrics() = default;

JobMetrics::Series* JobMetrics::series_of(const Job& job, const Core& core, int64_t unix_ns) {
  if (const auto known = jobs_.find(job.id); known != jobs_.end()) return known->second.get();
  if (!has_room_for(job, core, unix_ns)) return nullptr;
  std::unique_ptr<Series>& series = jobs_[job.id];
  Families& f = *families_;
  series = std::make_unique<Series>();
  series->labels = daemon::job_labels(job.id, job.spec.name);
  series->started = &f.started.Add(series->labels);
  series->attempt = &f.attempt.Add(series->labels);
  series->ranks = &f.ranks.Add(series->labels);
  series->restarts = &f.restarts.Add(series->labels);
  series->suspect = &f.suspect.Add(series->labels);
  series->step_seconds = &f.step_seconds.Add(series->labels, daemon::step_seconds_buckets());
  // From 0: an increase to 1 of what had no series is none to Prometheus.
  for (size_t i = 0; i < kIncidentKindNames.size(); ++i) {
    daemon::MetricLabels labels = series->labels;
    labels.emplace("kind", metric_label(kIncidentKindNames[i]));
    series->incidents[static_cast<IncidentKind>(i)] = &f.incidents.Add(labels);
  }
  return series.get();
}

void JobMetrics::observe(const Core& core, const Event& event) {
  const auto* heartbeat = std::get_if<HeartbeatReceived>(&event);
  if (heartbeat == nullptr) return;
  for (const RankProgress& progress : heartbeat->ranks) {
    const Job* job = owner_of_rank_0(core, *heartbeat, progress);
    if (job == nullptr) continue;
    Series* series = series_of(*job, core, heartbeat->unix_ns);
    if (series == nullptr) continue;
    if (series->counted_attempt != progress.attempt) series->counted = {};
    series->counted_attempt = progress.attempt;
    const auto added = progress.step_times.since(series->counted);
    if (!added) continue;
    daemon::observe(*added, *series->step_seconds);
    series->counted = progress.step_times;
  }
}

void JobMetrics::count_incident(const Core& core, const Incident& incident, int64_t unix_ns) {
  const auto job = core.jobs().find(incident.job);
  if (job == core.jobs().end()) return;
  Series* series = series_of(job->second, core, unix_ns);
  if (series == nullptr) return;
  series->incidents.at(incident.kind)->Increment();
  if (!incident.moments.empty()) {
    series->detection = &families_->detection.Add(
        series->labels,
        Histogram::BucketBoundaries(kDetectionBounds.begin(), kDetectionBounds.end()));
    const int64_t ns = incident.moments.back().unix_ns - incident.moments.front().unix_ns;
    series->detection->Observe(std::max(0.0, static_cast<double>(ns) / 1e9));
  }
}

void JobMetrics::update(const Core& core, Instant now, int64_t unix_ns) {
  Families& f = *families_;
  std::array<int64_t, kJobStateNames.size()> counts{};
  int64_t without = 0;
  look(core, unix_ns);
  for (const auto& [id, job] : core.jobs()) {
    ++counts[static_cast<size_t>(job.state)];
    if (job.attempt == Attempt(0) || ended_long_ago(job, unix_ns)) continue;
    Series* series = series_of(job, core, unix_ns);
    if (series == nullptr) {
      if (is_live(job.state)) ++without;
      continue;
    }
    const Account account = core.account_of(job, now);
    update_job(job, *series);
    update_checkpoint(job, account, *series);
    update_figures(job, *series);
    update_stragglers(core, job, *series);
    if (is_accounted(job)) update_goodput(account, now, *series);
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    f.jobs.Add({{"state", state_label(static_cast<JobState>(i))}})
        .Set(static_cast<double>(counts[i]));
  }
  f.without_series.Add({}).Set(static_cast<double>(without));
}

void JobMetrics::update_job(const Job& job, Series& series) {
  Families& f = *families_;
  if (series.state == nullptr || series.shown_state != job.state) {
    remove_from(f.state, series.state);
    daemon::MetricLabels labels = series.labels;
    labels.emplace("state", state_label(job.state));
    series.state = &f.state.Add(labels);
    series.state->Set(1);
    series.shown_state = job.state;
  }
  series.started->Set(static_cast<double>(job.started_unix_ns) / 1e9);
  series.attempt->Set(job.attempt.value());
  series.ranks->Set(static_cast<double>(job.placement.size()));
  series.restarts->Increment(std::max(0.0, job.restarts - series.restarts->Value()));
  series.suspect->Set(job.state == JobState::kSuspect || job.state == JobState::kDumping ? 1 : 0);
}

void JobMetrics::update_checkpoint(const Job& job, const Account& account, Series& series) {
  Families& f = *families_;
  if (!job.ranks.empty() && job.ranks.front().checkpoints.on_request != 0) series.saves = true;
  const bool has_one = account.checkpoint_step > 0;
  if (has_one)
    set(f.checkpoint_step, series.labels, series.checkpoint_step,
        static_cast<double>(account.checkpoint_step));
  // A job whose saves have all failed has most to lose.
  if (!has_one && !series.saves) return;
  const int64_t since = has_one ? account.checkpoint_unix_ns : job.started_unix_ns;
  set(f.checkpoint_time, series.labels, series.checkpoint_time, static_cast<double>(since) / 1e9);
}

void JobMetrics::update_figures(const Job& job, Series& series) {
  Families& f = *families_;
  const RankState first = job.ranks.empty() ? RankState{} : job.ranks.front();
  // The step's own time says that there was one: a resumed attempt has a step before it made any.
  if (first.step_seconds > 0) {
    set(f.step, series.labels, series.step, static_cast<double>(first.step));
    set(f.loss, series.labels, series.loss, first.loss);
    set(f.grad_norm, series.labels, series.grad_norm, first.grad_norm);
  }
  const bool has_speed = first.step_seconds > 0 && is_up(job, first);
  double mfu = 0;
  int known = 0;
  for (const RankState& rank : job.ranks) {
    if (!is_up(job, rank) || rank.device_peak_tflops <= 0 || rank.step_seconds <= 0) continue;
    mfu += rank.tflops_per_device / rank.device_peak_tflops;
    ++known;
  }
  if (!has_speed) remove_from(f.tokens, std::exchange(series.tokens, nullptr));
  if (!has_speed || known == 0) remove_from(f.mfu, std::exchange(series.mfu, nullptr));
  if (!has_speed) return;
  set(f.tokens, series.labels, series.tokens, tokens_per_second(job));
  if (known > 0) set(f.mfu, series.labels, series.mfu, mfu / known);
}

void JobMetrics::update_stragglers(const Core& core, const Job& job, Series& series) {
  std::map<Rank, Gauge*> slowest;
  for (const auto& [rank, score] : core.straggler_scores(job, kStragglersShown)) {
    const auto known = series.stragglers.find(rank);
    Gauge*& gauge = slowest[rank];
    if (known != series.stragglers.end()) {
      gauge = known->second;
    } else {
      daemon::MetricLabels labels = series.labels;
      labels.emplace("rank", std::to_string(rank.value()));
      gauge = &families_->straggler.Add(labels);
    }
    gauge->Set(score);
  }
  for (const auto& [rank, metric] : series.stragglers) {
    if (!slowest.contains(rank)) remove_from(families_->straggler, metric);
  }
  series.stragglers = std::move(slowest);
}

// Counters have what nothing changes any more, the ratio all of it. A loss is often settled as one lump, and a series that begins with it
// has no increase to Prometheus: so it begins with 0, but for what had been lost before there were series of this job.
void JobMetrics::update_goodput(const Account& account, Instant now, Series& series) {
  const auto raise = [](Counter& counter, Duration time) {
    counter.Increment(std::max(0.0, to_seconds(time) - counter.Value()));
  };
  const Instant zero_until = series.goodput == nullptr ? now : now + kZeroShown;
  if (series.goodput == nullptr) {
    series.goodput = &families_->goodput.Add(series.labels);
    series.productive = &families_->productive.Add(series.labels);
    series.accounted = &families_->accounted.Add(series.labels);
  }
  series.goodput->Set(table_of(account).ratio());
  raise(*series.productive, account.settled.productive());
  raise(*series.accounted, account.settled.wall());
  for (size_t what = 1; what < kTimeClasses; ++what) {
    for (size_t cause = 0; cause < kLossCauses; ++cause) {
      const Duration time = account.settled.time[what][cause];
      if (time == Duration::zero()) continue;
      Series::Lost& lost = series.lost[{cause, what}];
      if (lost.counter == nullptr) {
        daemon::MetricLabels labels = series.labels;
        labels.emplace("cause", metric_label(loss_cause_name(static_cast<LossCause>(cause))));
        labels.emplace("class", metric_label(kTimeClassNames[what]));
        lost = {&families_->lost.Add(labels), zero_until};
      }
      if (now >= lost.zero_until) raise(*lost.counter, time);
    }
  }
}

bool JobMetrics::has_room_for(const Job& job, const Core& core, int64_t unix_ns) {
  if (std::abs(unix_ns - looked_unix_ns_) >= kLookPeriod.count()) look(core, unix_ns);
  if (jobs_.size() < shown_) return true;
  if (!is_live(job.state) || !may_displace_) return false;
  may_displace_ = displace_one(core);
  return may_displace_;
}

// Who runs takes the place of one that waits: nothing happens to that one until it runs again.
bool JobMetrics::displace_one(const Core& core) {
  const auto waiting = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    const auto other = core.jobs().find(entry.first);
    return other != core.jobs().end() && other->second.state == JobState::kQueued;
  });
  if (waiting == jobs_.end()) return false;
  remove(*waiting->second);
  jobs_.erase(waiting);
  return true;
}

void JobMetrics::look(const Core& core, int64_t unix_ns) {
  looked_unix_ns_ = unix_ns;
  may_displace_ = true;
  int forgotten = 0;
  std::erase_if(jobs_, [&](const auto& entry) {
    if (forgotten == kForgottenAtOnce) return false;
    const auto job = core.jobs().find(entry.first);
    if (job != core.jobs().end() && !ended_long_ago(job->second, unix_ns)) return false;
    remove(*entry.second);
    ++forgotten;
    return true;
  });
}

void JobMetrics::remove(const Series& series) {
  Families& f = *families_;
  remove_from(f.state, series.state);
  remove_from(f.started, series.started);
  remove_from(f.attempt, series.attempt);
  remove_from(f.ranks, series.ranks);
  remove_from(f.restarts, series.restarts);
  remove_from(f.step_seconds, series.step_seconds);
  remove_from(f.accounted, series.accounted);
  remove_from(f.productive, series.productive);
  remove_from(f.goodput, series.goodput);
  remove_from(f.suspect, series.suspect);
  remove_from(f.detection, series.detection);
  remove_from(f.checkpoint_step, series.checkpoint_step);
  remove_from(f.checkpoint_time, series.checkpoint_time);
  for (const auto& [key, lost] : series.lost) remove_from(f.lost, lost.counter);
  for (const auto& [kind, counter] : series.incidents) remove_from(f.incidents, counter);
  for (const auto& [rank, metric] : series.stragglers) remove_from(f.straggler, metric);
  remove_from(f.step, series.step);
  remove_from(f.tokens, series.tokens);
  remove_from(f.loss, series.loss);
  remove_from(f.grad_norm, series.grad_norm);
  remove_from(f.mfu, series.mfu);
}

}  // namespace muster::coordinator

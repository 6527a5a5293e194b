#include "coordinator/shell/metrics/job_metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

#include "coordinator/shell/metrics/job_series.h"
#include "coordinator/shell/metrics/metric_label.h"

namespace muster::coordinator {
namespace {

using prometheus::Counter;
using prometheus::Histogram;

// The interval between searches for room, because thousands of jobs without series may have a
// heartbeat each second.
constexpr Duration kRoomSearchPeriod = std::chrono::seconds(1);

// Upper bounds of detection times in seconds: a dead rank is detected immediately, a hang after
// some steps, and a slow start after minutes.
constexpr std::array<double, 9> kDetectionBounds = {0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};

// Returns whether the job's account is at least as new as the counters that an earlier run showed.
// After a coordinator restart the stored account is older, until rank 0 has reported its progress;
// Prometheus interprets a decreasing counter as a restarted process.
bool is_accounted(const Job& job) {
  return !is_running(job.state) || job.ranks.empty() ||
         job.ranks.front().life != RankState::Life::kAssigned;
}

// Returns the job whose rank 0 `progress` belongs to, if it runs on the sender.
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
  for (size_t i = 0; i < kStepPartNames.size(); ++i) {
    daemon::MetricLabels labels = series->labels;
    labels.emplace("part", std::string(kStepPartNames[i]));
    series->parts[i] = &f.step_parts.Add(labels);
  }
  // Starts at 0: Prometheus sees no increase if a series begins with 1.
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
    if (series->counted_attempt != progress.attempt) {
      series->counted = {};
      series->counted_parts = {};
    }
    series->counted_attempt = progress.attempt;
    const auto added = progress.step_times.since(series->counted);
    if (!added) continue;
    daemon::observe(*added, *series->step_seconds);
    series->counted = progress.step_times;
    const StepPartSeconds parts = step_parts(progress);
    for (size_t i = 0; i < parts.size(); ++i)
      series->parts[i]->Increment(std::max(0.0, parts[i] - series->counted_parts[i]));
    series->counted_parts = parts;
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
  search_room(core, unix_ns);
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
    update_plan(job, *series);
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

bool JobMetrics::has_room_for(const Job& job, const Core& core, int64_t unix_ns) {
  if (std::abs(unix_ns - room_searched_unix_ns_) >= kRoomSearchPeriod.count())
    search_room(core, unix_ns);
  if (jobs_.size() < shown_) return true;
  if (!is_live(job.state) || !may_displace_) return false;
  may_displace_ = displace_one(core);
  return may_displace_;
}

// Removes the series of one waiting job, which do not change until it runs again, in favour of a
// running job.
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

void JobMetrics::search_room(const Core& core, int64_t unix_ns) {
  room_searched_unix_ns_ = unix_ns;
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
  for (Counter* part : series.parts) remove_from(f.step_parts, part);
  remove_from(f.planned_step, series.planned_step);
  remove_from(f.planned_communication, series.planned_communication);
  remove_from(f.planned_data, series.planned_data);
  remove_from(f.planned_checkpoint, series.planned_checkpoint);
  remove_from(f.planned_memory, series.planned_memory);
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

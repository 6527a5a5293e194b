#include "coordinator/shell/metrics.h"

#include <algorithm>
#include <array>
#include <chrono>

#include <absl/strings/ascii.h>
#include <absl/strings/str_replace.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "common/absl_view.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

// Long enough for a scraper to see how a job ended.
constexpr Duration kSeriesKept = std::chrono::minutes(5);

// Seconds: a dead rank is told at once, a hang after some steps, a slow start after minutes.
constexpr std::array<double, 9> kDetectionBounds = {0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};

// Of a job: a thousand ranks' scores would tell no more.
constexpr size_t kStragglersShown = 16;

Family<Gauge>& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

Family<Counter>& counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

template <class T>
void remove(Family<T>& family, T* metric) {
  if (metric != nullptr) family.Remove(metric);
}

bool ended_long_ago(const Job& job, int64_t unix_ns) {
  return is_terminal(job.state) && unix_ns - job.finished_unix_ns > kSeriesKept.count();
}

// The job whose rank 0 this is about, if it runs where the heartbeat comes from.
const Job* owner_of_rank_0(const Core& core, const HeartbeatReceived& heartbeat,
                           const RankProgress& progress) {
  const auto it = core.jobs().find(progress.job);
  if (progress.rank != Rank(0) || it == core.jobs().end()) return nullptr;
  const Job& job = it->second;
  const bool current = is_live(job.state) && job.attempt == progress.attempt &&
                       !job.placement.empty() && job.placement[0].worker == heartbeat.worker &&
                       job.placement[0].incarnation == heartbeat.incarnation;
  return current ? &job : nullptr;
}

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  Family<Gauge>& build_info =
      gauge(registry, "muster_coordinator_build_info", "The coordinator's version.");
  Family<Gauge>& epoch =
      gauge(registry, "muster_coordinator_epoch", "Starts of the coordinator over its state.");
  Family<Gauge>& jobs = gauge(registry, "muster_jobs", "Jobs by state.");
  Family<Gauge>& step = gauge(registry, "muster_job_step", "Steps completed by rank 0.");
  Family<Gauge>& attempt = gauge(registry, "muster_job_attempt", "Launches of the job so far.");
  Family<Gauge>& tokens = gauge(registry, "muster_job_tokens_per_second",
                                "Tokens per second, summed over the job's ranks.");
  Family<Gauge>& mfu = gauge(registry, "muster_job_mfu_ratio",
                             "Model FLOPs utilisation, mean over the job's ranks.");
  Family<Gauge>& loss = gauge(registry, "muster_job_loss", "Loss of the last step.");
  Family<Gauge>& grad_norm = gauge(registry, "muster_job_grad_norm",
                                   "Global L2 norm of the last step's gradient, before clipping.");
  Family<Histogram>& step_seconds =
      prometheus::BuildHistogram()
          .Name("muster_job_step_seconds")
          .Help("Time of each step that rank 0 completed, over all attempts.")
          .Register(registry);
  Family<Counter>& restarts =
      counter(registry, "muster_job_restarts_total", "Launches of the job after a fault.");
  Family<Gauge>& suspect = gauge(registry, "muster_job_suspect",
                                 "1 while the job is suspected of a hang and looked at closely.");
  Family<Gauge>& straggler =
      gauge(registry, "muster_job_straggler_score",
            "A slow rank's own time for a step, without its waits, over the median rank's.");
  Family<Counter>& incidents =
      counter(registry, "muster_job_incidents_total", "Incidents of the job, by kind.");
  Family<Histogram>& detection =
      prometheus::BuildHistogram()
          .Name("muster_job_detection_seconds")
          .Help("From the first sign of an incident, the last progress of a hang, to its verdict.")
          .Register(registry);
  Family<Gauge>& heartbeat_age = gauge(registry, "muster_fleet_heartbeat_age_seconds",
                                       "Time since the worker was last heard from.");
  Family<Gauge>& worker_connected =
      gauge(registry, "muster_fleet_connected", "1 while the worker's stream is open.");
  Family<Gauge>& worker_slots =
      gauge(registry, "muster_fleet_slots", "Ranks the worker can run at once.");
  Family<Gauge>& worker_slots_used =
      gauge(registry, "muster_fleet_slots_used", "Slots of the worker that ranks hold.");

  struct WorkerSeries {
    Gauge* age;
    Gauge* connected;
    Gauge* slots;
    Gauge* slots_used;
  };
  std::map<WorkerName, WorkerSeries> workers;
};

struct Metrics::JobSeries {
  Gauge* attempt = nullptr;
  Counter* restarts = nullptr;
  Gauge* suspect = nullptr;
  Histogram* detection = nullptr;  // null until there was an incident
  std::map<IncidentKind, Counter*> incidents;
  std::map<Rank, Gauge*> stragglers;  // the slowest ranks
  Histogram* step_seconds = nullptr;
  // Null until rank 0 has completed a step …
  Gauge* step = nullptr;
  Gauge* tokens = nullptr;
  Gauge* loss = nullptr;
  Gauge* grad_norm = nullptr;
  Gauge* mfu = nullptr;  // … and the device's peak is known
  Attempt counted_attempt{0};
  StepTimes counted;  // what step_seconds has of that attempt
};

Metrics::Metrics(Epoch epoch) : families_(std::make_unique<Families>()) {
  families_->epoch.Add({}).Set(static_cast<double>(epoch.value()));
}

Metrics::~Metrics() = default;

Metrics::JobSeries& Metrics::series_of(const Job& job, const Core& core, int64_t unix_ns) {
  if (!jobs_.contains(job.id)) prune(core, unix_ns);
  std::unique_ptr<JobSeries>& series = jobs_[job.id];
  if (series == nullptr) {
    const auto labels = daemon::job_labels(job.id, job.spec.name);
    Families& f = *families_;
    series = std::make_unique<JobSeries>();
    series->attempt = &f.attempt.Add(labels);
    series->restarts = &f.restarts.Add(labels);
    series->suspect = &f.suspect.Add(labels);
    series->step_seconds = &f.step_seconds.Add(labels, daemon::step_seconds_buckets());
  }
  return *series;
}

void Metrics::observe(const Core& core, const Event& event) {
  const auto* heartbeat = std::get_if<HeartbeatReceived>(&event);
  if (heartbeat == nullptr) return;
  for (const RankProgress& progress : heartbeat->ranks) {
    const Job* job = owner_of_rank_0(core, *heartbeat, progress);
    if (job == nullptr) continue;
    JobSeries& series = series_of(*job, core, heartbeat->unix_ns);
    if (series.counted_attempt != progress.attempt) series.counted = {};
    series.counted_attempt = progress.attempt;
    const auto added = progress.step_times.since(series.counted);
    if (!added) continue;
    daemon::observe(*added, *series.step_seconds);
    series.counted = progress.step_times;
  }
}

void Metrics::count_incident(const Core& core, const Incident& incident, int64_t unix_ns) {
  const auto job = core.jobs().find(incident.job);
  if (job == core.jobs().end()) return;
  JobSeries& series = series_of(job->second, core, unix_ns);
  daemon::MetricLabels labels = daemon::job_labels(incident.job, job->second.spec.name);
  Families& f = *families_;
  if (!incident.moments.empty()) {
    series.detection = &f.detection.Add(
        labels,
        prometheus::Histogram::BucketBoundaries(kDetectionBounds.begin(), kDetectionBounds.end()));
    const int64_t ns = incident.moments.back().unix_ns - incident.moments.front().unix_ns;
    series.detection->Observe(std::max(0.0, static_cast<double>(ns) / 1e9));
  }
  labels.emplace("kind",
                 absl::StrReplaceAll(av(kIncidentKindNames[static_cast<size_t>(incident.kind)]),
                                     {{" ", "_"}}));
  Counter*& counter = series.incidents[incident.kind];
  counter = &f.incidents.Add(labels);
  counter->Increment();
}

void Metrics::update_job(const Job& job, JobSeries& series) {
  series.attempt->Set(job.attempt.value());
  series.restarts->Increment(std::max(0.0, job.restarts - series.restarts->Value()));
  series.suspect->Set(job.state == JobState::kSuspect || job.state == JobState::kDumping ? 1 : 0);
  if (job.ranks.empty()) return;
  const auto labels = daemon::job_labels(job.id, job.spec.name);
  Families& f = *families_;
  const RankState& first = job.ranks.front();
  // The step's own time says that there was one: a resumed attempt has a step before it made any.
  if (first.step_seconds > 0) {
    series.step = &f.step.Add(labels);
    series.loss = &f.loss.Add(labels);
    series.grad_norm = &f.grad_norm.Add(labels);
    series.tokens = &f.tokens.Add(labels);
    series.step->Set(static_cast<double>(first.step));
    series.loss->Set(first.loss);
    series.grad_norm->Set(first.grad_norm);
  }
  if (series.tokens == nullptr) return;
  double mfu = 0;
  int known = 0;
  for (const RankState& rank : job.ranks) {
    if (!is_up(job, rank) || rank.device_peak_tflops <= 0) continue;
    mfu += rank.tflops_per_device / rank.device_peak_tflops;
    ++known;
  }
  series.tokens->Set(tokens_per_second(job));
  if (known > 0) series.mfu = &f.mfu.Add(labels);
  if (series.mfu != nullptr) series.mfu->Set(known > 0 ? mfu / known : 0);
}

void Metrics::update_stragglers(const Core& core, const Job& job, JobSeries& series) {
  std::map<Rank, Gauge*> slowest;
  for (const auto& [rank, score] : core.straggler_scores(job, kStragglersShown)) {
    daemon::MetricLabels labels = daemon::job_labels(job.id, job.spec.name);
    labels.emplace("rank", std::to_string(rank.value()));
    slowest[rank] = &families_->straggler.Add(labels);
    slowest[rank]->Set(score);
  }
  for (const auto& [rank, metric] : series.stragglers) {
    if (!slowest.contains(rank)) remove(families_->straggler, metric);
  }
  series.stragglers = std::move(slowest);
}

void Metrics::update_jobs(const Core& core, int64_t unix_ns) {
  Families& f = *families_;
  std::array<int64_t, kJobStateNames.size()> counts{};
  for (const auto& [id, job] : core.jobs()) {
    ++counts[static_cast<size_t>(job.state)];
    if (job.attempt == Attempt(0) || ended_long_ago(job, unix_ns)) continue;
    JobSeries& series = series_of(job, core, unix_ns);
    update_job(job, series);
    update_stragglers(core, job, series);
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    const std::string state = absl::AsciiStrToLower(av(kJobStateNames[i]));
    f.jobs.Add({{"state", state}}).Set(static_cast<double>(counts[i]));
  }
  prune(core, unix_ns);
}

void Metrics::prune(const Core& core, int64_t unix_ns) {
  Families& f = *families_;
  std::erase_if(jobs_, [&](const auto& entry) {
    const auto job = core.jobs().find(entry.first);
    if (job != core.jobs().end() && !ended_long_ago(job->second, unix_ns)) return false;
    const JobSeries& series = *entry.second;
    remove(f.attempt, series.attempt);
    remove(f.restarts, series.restarts);
    remove(f.step_seconds, series.step_seconds);
    remove(f.suspect, series.suspect);
    remove(f.detection, series.detection);
    for (const auto& [kind, counter] : series.incidents) remove(f.incidents, counter);
    for (const auto& [rank, metric] : series.stragglers) remove(f.straggler, metric);
    remove(f.step, series.step);
    remove(f.tokens, series.tokens);
    remove(f.loss, series.loss);
    remove(f.grad_norm, series.grad_norm);
    remove(f.mfu, series.mfu);
    return true;
  });
}

void Metrics::update_workers(const Core& core, Instant now) {
  Families& f = *families_;
  for (auto it = f.workers.begin(); it != f.workers.end();) {
    if (core.workers().contains(it->first)) {
      ++it;
      continue;
    }
    f.heartbeat_age.Remove(it->second.age);
    f.worker_connected.Remove(it->second.connected);
    f.worker_slots.Remove(it->second.slots);
    f.worker_slots_used.Remove(it->second.slots_used);
    it = f.workers.erase(it);
  }
  const std::map<WorkerName, int32_t> used = core.slots_used_by_worker();
  for (const auto& [name, worker] : core.workers()) {
    const daemon::MetricLabels labels = {{"worker", name.value()}};
    const auto [it, added] = f.workers.try_emplace(name);
    if (added) {
      it->second = {&f.heartbeat_age.Add(labels), &f.worker_connected.Add(labels),
                    &f.worker_slots.Add(labels), &f.worker_slots_used.Add(labels)};
    }
    it->second.age->Set(to_seconds(now - worker.last_heard));
    it->second.connected->Set(worker.connected ? 1 : 0);
    it->second.slots->Set(worker.slots);
    const auto count = used.find(name);
    it->second.slots_used->Set(count == used.end() ? 0 : count->second);
  }
}

std::string Metrics::render(const Core& core, Instant now, int64_t unix_ns) {
  families_->build_info.Add({{"version", core.options().version}}).Set(1);
  update_jobs(core, unix_ns);
  update_workers(core, now);
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace muster::coordinator

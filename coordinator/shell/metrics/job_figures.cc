// Updates the values of a job's series.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "coordinator/shell/metrics/job_series.h"
#include "coordinator/shell/metrics/metric_label.h"

namespace muster::coordinator {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;

// The time for which a new loss is shown as 0, so that any usual scraper reads the 0 at least once.
constexpr Duration kZeroShown = std::chrono::minutes(1);

// Sets a gauge of the job. `gauge` is null until its first value.
void set(Family<Gauge>& family, const daemon::MetricLabels& labels, Gauge*& gauge, double value) {
  if (gauge == nullptr) gauge = &family.Add(labels);
  gauge->Set(value);
}

}  // namespace

void JobMetrics::update_plan(const Job& job, Series& series) {
  Families& f = *families_;
  const JobSpec& spec = job.spec;
  const bool holds =
      job.placement.empty() || std::ssize(job.placement) == int64_t{spec.world_size()};
  const auto show = [&](Family<Gauge>& family, Gauge*& gauge, bool is_known, double value) {
    if (holds && is_known) return set(family, series.labels, gauge, value);
    remove_from(family, std::exchange(gauge, nullptr));
  };
  constexpr double kMicro = 1e-6;
  const auto show_time = [&](Family<Gauge>& family, Gauge*& gauge, int64_t us) {
    show(family, gauge, spec.planned_step_us > 0, kMicro * static_cast<double>(us));
  };
  show_time(f.planned_step, series.planned_step, spec.planned_step_us);
  show_time(f.planned_communication, series.planned_communication, spec.planned_communication_us);
  show_time(f.planned_data, series.planned_data, spec.planned_data_us);
  show_time(f.planned_checkpoint, series.planned_checkpoint, spec.planned_checkpoint_us);
  show(f.planned_memory, series.planned_memory, spec.planned_memory_bytes > 0,
       static_cast<double>(spec.planned_memory_bytes));
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
  series.started->Set(static_cast<double>(job.first_started_unix_ns) / 1e9);
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
  // The time of the newest checkpoint is also shown for a job whose saves have all failed, because
  // such a job would lose the most.
  if (!has_one && !series.saves) return;
  const int64_t since = has_one ? account.checkpoint_unix_ns : job.started_unix_ns;
  set(f.checkpoint_time, series.labels, series.checkpoint_time, static_cast<double>(since) / 1e9);
}

void JobMetrics::update_figures(const Job& job, Series& series) {
  Families& f = *families_;
  const RankState first = job.ranks.empty() ? RankState{} : job.ranks.front();
  // Checks the step's duration, because a resumed attempt has a step number before it completes a
  // step.
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
    mfu += std::min(rank.tflops_per_device / rank.device_peak_tflops, 1.0);
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

// Updates the job's time. The counters contain settled time, and the ratio contains all time. A
// loss is often settled in one step, and Prometheus sees no increase in a series that begins with
// the loss, so the series begins at 0. Exception: losses before the job had series.
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

}  // namespace muster::coordinator

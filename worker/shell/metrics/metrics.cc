#include "worker/shell/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "daemon/disk_gauges.h"
#include "daemon/metric_families.h"
#include "daemon/metric_words.h"
#include "daemon/metrics_text.h"

namespace muster::worker {

using daemon::counters;
using daemon::gauges;
using daemon::histograms;

Metrics::Metrics(Options options)
    : options_(std::move(options)),
      slots_(gauges<"muster_worker_slots">(*registry_).Add({})),
      ranks_running_(gauges<"muster_worker_ranks_running">(*registry_).Add({})),
      registered_(gauges<"muster_worker_registered">(*registry_).Add({})),
      reports_waiting_(gauges<"muster_worker_exit_reports_waiting">(*registry_).Add({})),
      heartbeats_(counters<"muster_worker_heartbeats_sent_total">(*registry_).Add({})),
      heartbeat_age_(gauges<"muster_worker_heartbeat_age_seconds">(*registry_)),
      connections_(counters<"muster_worker_connections_total">(*registry_).Add({})),
      log_bytes_(counters<"muster_worker_log_shipped_bytes_total">(*registry_).Add({})),
      exits_(counters<"muster_worker_rank_exits_total">(*registry_)),
      stack_traces_(counters<"muster_worker_stack_traces_total">(*registry_).Add({})),
      stack_traces_dropped_(
          counters<"muster_worker_stack_traces_dropped_total">(*registry_).Add({})),
      steps_(histograms<"muster_worker_step_seconds">(*registry_)
                 .Add({}, daemon::step_seconds_buckets())),
      checkpoints_(counters<"muster_worker_checkpoints_total">(*registry_)),
      checkpoint_stall_(
          counters<"muster_worker_checkpoint_stall_seconds_total">(*registry_).Add({})),
      disk_bytes_(gauges<"muster_worker_disk_bytes">(*registry_)),
      disk_free_(gauges<"muster_worker_disk_free_bytes">(*registry_)),
      oldest_progress_(gauges<"muster_worker_progress_age_max_seconds">(*registry_)),
      step_(gauges<"muster_rank_step">(*registry_)),
      checkpoint_step_(gauges<"muster_rank_checkpoint_step">(*registry_)),
      checkpoint_seconds_(gauges<"muster_rank_last_checkpoint_seconds">(*registry_)),
      step_seconds_(gauges<"muster_rank_last_step_seconds">(*registry_)),
      tokens_per_second_(gauges<"muster_rank_tokens_per_second">(*registry_)),
      loss_(gauges<"muster_rank_loss">(*registry_)),
      grad_norm_(gauges<"muster_rank_grad_norm">(*registry_)),
      data_wait_(counters<"muster_rank_data_wait_seconds_total">(*registry_)),
      eval_loss_(gauges<"muster_rank_eval_loss">(*registry_)),
      mfu_(gauges<"muster_rank_mfu_ratio">(*registry_)),
      progress_age_(gauges<"muster_rank_progress_age_seconds">(*registry_)),
      gpus_(*registry_),
      network_(*registry_) {
  gauges<"muster_worker_build_info">(*registry_)
      .Add({{"version", options_.version}, {"worker", options_.worker}})
      .Set(1);
}

void Metrics::count_exit(int exit_code, int signal) {
  const char* how = signal != 0 ? "signal" : exit_code == 0 ? "success" : "failure";
  exits_.Add({{"how", how}}).Increment();
}

void Metrics::set_stack_traces(uint64_t taken, uint64_t dropped) {
  const auto raise = [](prometheus::Counter& counter, uint64_t value) {
    counter.Increment(std::max(0.0, static_cast<double>(value) - counter.Value()));
  };
  raise(stack_traces_, taken);
  raise(stack_traces_dropped_, dropped);
}

void Metrics::count_steps(const RankFigures& before, const RankFigures& now) {
  if (const auto added = now.step_times.since(before.step_times)) daemon::observe(*added, steps_);
  // The page belongs to another process: a decrease counts as nothing.
  const auto count = [&](const char* outcome, uint64_t had, uint64_t has) {
    if (has > had)
      checkpoints_.Add({{"outcome", outcome}}).Increment(static_cast<double>(has - had));
  };
  count("saved", before.checkpoints.saved, now.checkpoints.saved);
  count("failed", before.checkpoints.failed, now.checkpoints.failed);
  const double stall = now.checkpoints.stall_seconds - before.checkpoints.stall_seconds;
  if (stall > 0 && std::isfinite(stall)) checkpoint_stall_.Increment(stall);
}

void Metrics::update(const Core& core, Instant now) {
  is_registered_ = core.registered();
  has_ranks_ = !core.ranks().empty();
  slots_.Set(core.slots());
  gpus_used_ = core.gpus_used();
  registered_.Set(core.registered() ? 1 : 0);
  reports_waiting_.Set(static_cast<double>(core.unacknowledged().size()));
  int running = 0;
  for (const auto& [key, rank] : core.ranks()) {
    if (rank.life != Core::Life::kUp) continue;
    ++running;
    const int32_t world = rank.launch->spec.world_size();
    if (daemon::is_sampled(key.rank.value(), world, options_.rank_series))
      update_rank(key, rank, now);
  }
  ranks_running_.Set(running);
  std::erase_if(ranks_, [&](const auto& entry) {
    if (core.ranks().contains(entry.first)) return false;
    remove_rank(entry.second);
    return true;
  });
  update_oldest(core, now);
}

void Metrics::update_oldest(const Core& core, Instant now) {
  std::map<JobId, std::pair<const std::string*, Duration>> ages;
  for (const auto& [key, rank] : core.ranks()) {
    if (rank.life != Core::Life::kUp) continue;
    auto& [name, age] =
        ages.try_emplace(key.job, &rank.launch->spec.name, Duration::zero()).first->second;
    age = std::max(age, now - rank.figures.last_progress);
  }
  std::erase_if(oldest_, [&](const auto& entry) {
    if (ages.contains(entry.first)) return false;
    oldest_progress_.Remove(entry.second);
    return true;
  });
  for (const auto& [job, oldest] : ages) {
    prometheus::Gauge*& gauge = oldest_[job];
    if (gauge == nullptr) gauge = &oldest_progress_.Add(daemon::job_labels(job, *oldest.first));
    gauge->Set(to_seconds(oldest.second));
  }
}

void Metrics::update_rank(const RankKey& key, const Core::RankState& rank, Instant now) {
  const RankFigures& figures = rank.figures;
  const auto labels = daemon::rank_labels(key.job, rank.launch->spec.name, key.attempt, key.rank);
  RankGauges& gauges = ranks_[key];
  gauges.progress_age = &progress_age_.Add(labels);
  gauges.progress_age->Set(std::max(0.0, to_seconds(now - figures.last_progress)));
  if (figures.checkpoint_step > 0) {
    gauges.checkpoint_step = &checkpoint_step_.Add(labels);
    gauges.checkpoint_step->Set(static_cast<double>(figures.checkpoint_step));
  }
  if (figures.checkpoints.saved > 0) {
    gauges.checkpoint_seconds = &checkpoint_seconds_.Add(labels);
    gauges.checkpoint_seconds->Set(figures.checkpoints.seconds);
  }
  // Checks the step's duration, because a resumed attempt has a step number before it completes a
  // step.
  if (!(figures.step_seconds > 0)) return;
  gauges.step = &step_.Add(labels);
  gauges.step_seconds = &step_seconds_.Add(labels);
  gauges.tokens_per_second = &tokens_per_second_.Add(labels);
  gauges.loss = &loss_.Add(labels);
  gauges.grad_norm = &grad_norm_.Add(labels);
  gauges.step->Set(static_cast<double>(figures.step));
  gauges.step_seconds->Set(figures.step_seconds);
  gauges.tokens_per_second->Set(figures.tokens_per_second);
  gauges.loss->Set(figures.loss);
  gauges.grad_norm->Set(figures.grad_norm);
  gauges.data_wait = &data_wait_.Add(labels);
  gauges.data_wait->Increment(std::max(0.0, figures.data_wait_seconds - gauges.data_wait->Value()));
  if (figures.eval_step > 0) {
    gauges.eval_loss = &eval_loss_.Add(labels);
    gauges.eval_loss->Set(figures.eval_loss);
  }
  if (!(figures.device_peak_tflops > 0)) return;
  gauges.mfu = &mfu_.Add(labels);
  gauges.mfu->Set(std::min(figures.tflops_per_device / figures.device_peak_tflops, 1.0));
}

void Metrics::remove_rank(const RankGauges& gauges) {
  progress_age_.Remove(gauges.progress_age);
  if (gauges.checkpoint_step != nullptr) checkpoint_step_.Remove(gauges.checkpoint_step);
  if (gauges.checkpoint_seconds != nullptr) checkpoint_seconds_.Remove(gauges.checkpoint_seconds);
  if (gauges.step == nullptr) return;
  step_.Remove(gauges.step);
  step_seconds_.Remove(gauges.step_seconds);
  tokens_per_second_.Remove(gauges.tokens_per_second);
  loss_.Remove(gauges.loss);
  grad_norm_.Remove(gauges.grad_norm);
  data_wait_.Remove(gauges.data_wait);
  if (gauges.eval_loss != nullptr) eval_loss_.Remove(gauges.eval_loss);
  if (gauges.mfu != nullptr) mfu_.Remove(gauges.mfu);
}

void Metrics::count_heartbeat(Instant now) {
  heartbeats_.Increment();
  last_heartbeat_ns_ = to_ns(now);
}

std::string Metrics::text(Instant now) const {
  if (const int64_t last = last_heartbeat_ns_; last != 0)
    heartbeat_age_.Add({}).Set(std::max(0.0, to_seconds(now - instant_from_ns(last))));
  daemon::set_disk_gauges(options_.work_dir, disk_bytes_, disk_free_);
  return daemon::metrics_text(registry_->Collect());
}

}  // namespace muster::worker

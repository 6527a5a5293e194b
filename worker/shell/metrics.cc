#include "worker/shell/metrics.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <prometheus/text_serializer.h>

#include "daemon/step_histogram.h"

namespace muster::worker {
namespace {

auto& gauges(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

auto& counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

}  // namespace

Metrics::Metrics(const std::string& version, const std::string& worker)
    : slots_(gauges(*registry_, "muster_worker_slots", "Ranks that this worker may run at once.")
                 .Add({})),
      ranks_running_(
          gauges(*registry_, "muster_worker_ranks_running", "Ranks that have a process now.")
              .Add({})),
      registered_(gauges(*registry_, "muster_worker_registered",
                         "1 while the coordinator has accepted this worker's stream.")
                      .Add({})),
      reports_waiting_(gauges(*registry_, "muster_worker_exit_reports_waiting",
                              "Ends of ranks that the coordinator has not acknowledged.")
                           .Add({})),
      heartbeats_(counters(*registry_, "muster_worker_heartbeats_sent_total",
                           "Heartbeats handed to the stream.")
                      .Add({})),
      connections_(counters(*registry_, "muster_worker_connections_total",
                            "Attempts to open a stream to the coordinator.")
                       .Add({})),
      log_bytes_(counters(*registry_, "muster_worker_log_shipped_bytes_total",
                          "Bytes of rank output handed to the stream, repeats included.")
                     .Add({})),
      exits_(counters(*registry_, "muster_worker_rank_exits_total", "Ranks that ended, by how.")),
      steps_(prometheus::BuildHistogram()
                 .Name("muster_worker_step_seconds")
                 .Help("Time of each step that a rank of this worker completed.")
                 .Register(*registry_)
                 .Add({}, daemon::step_seconds_buckets())),
      step_(gauges(*registry_, "muster_worker_rank_step",
                   "Steps completed by the rank, -1 before the first.")),
      step_seconds_(gauges(*registry_, "muster_worker_rank_step_seconds",
                           "Duration of the rank's last step.")),
      tokens_per_second_(gauges(*registry_, "muster_worker_rank_tokens_per_second",
                                "Tokens per second of the rank's last step.")),
      loss_(gauges(*registry_, "muster_worker_rank_loss", "Loss of the rank's last step.")),
      grad_norm_(gauges(*registry_, "muster_worker_rank_gradient_norm",
                        "Global gradient norm of the rank's last step, before clipping.")),
      progress_age_(gauges(*registry_, "muster_worker_rank_progress_age_seconds",
                           "Time since the rank's last sign of progress, at the last heartbeat.")) {
  gauges(*registry_, "muster_worker_build_info", "1, with the version as a label.")
      .Add({{"version", version}, {"worker", worker}})
      .Set(1);
}

void Metrics::count_exit(int exit_code, int signal) {
  const char* how = signal != 0 ? "signal" : exit_code == 0 ? "success" : "failure";
  exits_.Add({{"how", how}}).Increment();
}

void Metrics::count_steps(const RankFigures& before, const RankFigures& now) {
  if (const auto added = now.step_times.since(before.step_times)) daemon::observe(*added, steps_);
}

void Metrics::update(const Core& core, Instant now) {
  is_registered_ = core.registered();
  slots_.Set(core.slots());
  registered_.Set(core.registered() ? 1 : 0);
  reports_waiting_.Set(static_cast<double>(core.unacknowledged().size()));
  int running = 0;
  for (const auto& [key, rank] : core.ranks()) {
    if (rank.life != Core::Life::kUp) continue;
    ++running;
    auto found = ranks_.find(key);
    if (found == ranks_.end()) {
      found = ranks_.emplace(key, add_rank(key, rank.launch->spec.job_name)).first;
    }
    const RankGauges& gauges = found->second;
    gauges.step->Set(static_cast<double>(rank.figures.step));
    gauges.step_seconds->Set(rank.figures.step_seconds);
    gauges.tokens_per_second->Set(rank.figures.tokens_per_second);
    gauges.loss->Set(rank.figures.loss);
    gauges.grad_norm->Set(rank.figures.grad_norm);
    gauges.progress_age->Set(std::max(0.0, to_seconds(now - rank.figures.last_progress)));
  }
  ranks_running_.Set(running);
  std::erase_if(ranks_, [&](const auto& entry) {
    if (core.ranks().contains(entry.first)) return false;
    remove_rank(entry.second);
    return true;
  });
}

Metrics::RankGauges Metrics::add_rank(const RankKey& key, const std::string& job_name) {
  const prometheus::Labels labels{{"job_id", absl::StrCat(key.job.value())},
                                  {"job_name", job_name},
                                  {"attempt", absl::StrCat(key.attempt.value())},
                                  {"rank", absl::StrCat(key.rank.value())}};
  return {&step_.Add(labels), &step_seconds_.Add(labels), &tokens_per_second_.Add(labels),
          &loss_.Add(labels), &grad_norm_.Add(labels),    &progress_age_.Add(labels)};
}

void Metrics::remove_rank(const RankGauges& gauges) {
  step_.Remove(gauges.step);
  step_seconds_.Remove(gauges.step_seconds);
  tokens_per_second_.Remove(gauges.tokens_per_second);
  loss_.Remove(gauges.loss);
  grad_norm_.Remove(gauges.grad_norm);
  progress_age_.Remove(gauges.progress_age);
}

std::string Metrics::text() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace muster::worker

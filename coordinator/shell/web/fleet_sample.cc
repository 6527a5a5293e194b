#include "coordinator/shell/web/fleet_sample.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/job/gpu.h"
#include "coordinator/core/accounting/ledger.h"
#include "coordinator/shell/messages/job_and_worker_messages.h"

namespace muster::coordinator {
namespace {

// Sums over the ranks in one pass: a job may have 100,000 of them.
MetricPoint figures_of(const Job& job, int64_t unix_ns) {
  MetricPoint point;
  point.unix_ns = unix_ns;
  point.attempt = job.attempt.value();
  if (job.ranks.empty()) return point;
  const RankState& first = job.ranks.front();
  point.step = first.step;
  point.loss = first.loss;
  point.grad_norm = first.grad_norm;
  point.step_seconds = first.step_seconds;
  point.learning_rate = first.learning_rate;
  double mfu = 0;
  int known = 0;
  for (const RankState& rank : job.ranks) {
    if (!is_up(job, rank)) continue;
    point.tokens_per_second += rank.tokens_per_second;
    if (rank.device_peak_tflops <= 0 || rank.step_seconds <= 0) continue;
    mfu += std::min(rank.tflops_per_device / rank.device_peak_tflops, 1.0);
    ++known;
  }
  if (known > 0) point.mfu = mfu / known;
  return point;
}

int64_t gpus_of(const Core& core, const Job& job) {
  if (job.spec.gpus_per_rank >= 0)
    return int64_t{job.spec.gpus_per_rank} * std::ssize(job.placement);
  // A slot's share of its worker's GPUs. All nodes of a job are alike, so one of them is enough.
  if (job.placement.empty()) return 0;
  const auto worker = core.workers().find(job.placement.front().worker);
  if (worker == core.workers().end()) return 0;
  return int64_t{gpus_of_rank(job.spec.gpus_per_rank,
                              static_cast<int32_t>(std::ssize(worker->second.gpus)),
                              worker->second.slots)} *
         std::ssize(job.placement);
}

JobRow row_of(const Core& core, const Job& job, const Account& account, int64_t unix_ns) {
  JobRow row;
  row.id = job.id.value();
  row.name = job.spec.name;
  row.user = job.spec.user;
  row.state = job.state;
  row.reason = job.reason;
  row.ranks = job.placement.empty() ? job.spec.world_size() : std::ssize(job.placement);
  row.nodes = job.placement.empty() ? job.spec.nodes : nodes_now(job);
  row.gpus = is_live(job.state) ? gpus_of(core, job) : 0;
  row.priority = job.spec.priority;
  row.steps = job.spec.steps;
  const LossTable time = table_of(account);
  if (time.wall() > Duration::zero()) row.ettr = time.ratio();
  row.incident = job.incident.id.value();
  row.submitted_unix_ns = job.submitted_unix_ns;
  row.started_unix_ns = job.first_started_unix_ns;
  row.finished_unix_ns = job.finished_unix_ns;
  row.figures = figures_of(job, unix_ns);
  row.has_figures = row.figures.step_seconds > 0;
  return row;
}

void add_nodes(const Core& core, FleetSample& sample) {
  const NodeUses uses = core.use_by_worker();
  for (const auto& [name, worker] : core.workers()) {
    const auto node = core.nodes().find(name);
    const bool is_excluded = node != core.nodes().end() && node->second.excluded;
    const bool is_checked = node != core.nodes().end() && node->second.check_due;
    ++sample.nodes.total;
    sample.nodes.connected += worker.connected ? 1 : 0;
    sample.nodes.excluded += is_excluded ? 1 : 0;
    sample.nodes.leaving += worker.leaving ? 1 : 0;
    sample.nodes.checking += is_checked && !is_excluded ? 1 : 0;
    const auto use = uses.find(name);
    const bool takes_ranks = worker.connected && !is_excluded && !is_checked && !worker.leaving;
    const auto count = [&](ResourceNumbers& numbers, int64_t total, int64_t used) {
      const int64_t free = std::max<int64_t>(total - used, 0);
      numbers.total += total;
      numbers.used += used;
      (takes_ranks ? numbers.free : numbers.excluded) += free;
    };
    count(sample.slots, worker.slots, use == uses.end() ? 0 : use->second.slots);
    count(sample.gpus, std::ssize(worker.gpus), use == uses.end() ? 0 : use->second.gpus);
  }
  for (const auto& [name, node] : core.nodes()) {
    if (!node.excluded || core.workers().contains(name)) continue;
    ++sample.nodes.total;
    ++sample.nodes.excluded;
  }
  sample.has_totals = true;
}

}  // namespace

FleetSample sample_fleet(const Core& core, Instant now, int64_t unix_ns, bool with_totals,
                         const std::set<JobId>& watched) {
  FleetSample sample;
  sample.unix_ns = unix_ns;
  sample.open_incidents = core.open_incidents();
  // The jobs by the order of kRowsMax, each group from the newest.
  std::array<std::vector<const Job*>, 3> groups;
  for (auto it = core.jobs().rbegin(); it != core.jobs().rend(); ++it) {
    const Job& job = it->second;
    ++sample.jobs[static_cast<size_t>(job.state)];
    groups[is_live(job.state) ? 0 : is_terminal(job.state) ? 2 : 1].push_back(&job);
    if (!with_totals) continue;
    const Account account = core.account_of(job, now);
    const LossTable time = table_of(account);
    for (size_t what = 0; what < kTimeClasses; ++what)
      for (size_t cause = 0; cause < kLossCauses; ++cause)
        sample.goodput.time[what][cause] += time.time[what][cause];
    sample.queued += account.queued;
  }
  sample.rows.reserve(std::min(core.jobs().size(), kRowsMax));
  for (const auto& group : groups) {
    for (const Job* job : group) {
      const bool has_row = sample.rows.size() < kRowsMax;
      if (has_row) sample.rows.push_back(row_of(core, *job, core.account_of(*job, now), unix_ns));
      if (!is_live(job->state)) continue;
      const MetricPoint figures = has_row ? sample.rows.back().figures : figures_of(*job, unix_ns);
      sample.ranks += std::ssize(job->ranks);
      sample.tokens_per_second += figures.tokens_per_second;
    }
  }
  sample.has_more_jobs = core.jobs().size() > sample.rows.size();
  if (with_totals) add_nodes(core, sample);
  for (const JobId id : watched) {
    const auto job = core.jobs().find(id);
    std::unique_ptr<v1::Job>& message = sample.watched[id];
    if (job == core.jobs().end()) continue;
    message = std::make_unique<v1::Job>(job_to_proto(core, job->second, now, 0, 1));
    message->mutable_spec()->clear_train_config_json();
  }
  return sample;
}

}  // namespace muster::coordinator

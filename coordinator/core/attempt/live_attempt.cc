#include "coordinator/core/attempt/live_attempt.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/text/fold_names.h"
#include "coordinator/core/attempt/slow_node_records.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

void copy_figures(const RankProgress& progress, Instant now, RankState& state) {
  state.pid = progress.pid;
  state.phase = progress.phase;
  state.step = progress.step;
  state.loss = progress.loss;
  state.grad_norm = progress.grad_norm;
  state.learning_rate = progress.learning_rate;
  state.step_seconds = progress.step_seconds;
  state.tokens_per_second = progress.tokens_per_second;
  state.tflops_per_device = progress.tflops_per_device;
  state.device_peak_tflops = progress.device_peak_tflops;
  state.checkpoint_step = progress.checkpoint_step;
  state.checkpoints = progress.checkpoints;
  state.last_progress = now - progress.last_progress_age;
  state.process_state = progress.process_state;
}

}  // namespace

LiveAttempt::LiveAttempt(const CoreOptions& options, const Job& job, Instant now)
    : progress(options, job, now), growth(now) {
  reach.next_check = now;
  for (const RankPlacement& rank : job.placement) {
    ranks[rank.worker].push_back(rank.rank);
    const RankState& state = job.ranks[static_cast<size_t>(rank.rank.value())];
    assigned_ += state.life == RankState::Life::kAssigned ? 1 : 0;
    left_ += state.life == RankState::Life::kExited ? 0 : 1;
    if (state.life == RankState::Life::kExited) progress.forget(rank.rank);
  }
}

bool LiveAttempt::observe(Job& job, const RankProgress& page, SlowNodePolicy policy,
                          IncidentBook& incidents, const CoreTime& time) {
  RankState& state = job.ranks[static_cast<size_t>(page.rank.value())];
  saves_.remove(state.checkpoints);
  copy_figures(page, time.now, state);
  saves_.add(state.checkpoints);
  if (page.rank == Rank(0) && checkpoint_after && page.checkpoint_step > *checkpoint_after)
    checkpoint_after.reset();
  progress.observe(page, time.now);
  bool changes_nodes = false;
  if (progress.record_stragglers(incidents, job, time))
    changes_nodes = record_slow_nodes(progress, job, policy, incidents, time);
  progress.record_slow_steps(incidents, job, page, time);
  progress.record_loss(incidents, job, page, time);
  if (page.rank == Rank(0) && measure_moves(progress, job, incidents, time)) changes_nodes = true;
  return changes_nodes;
}

void LiveAttempt::follow_saves(const Job& job, const CoreOptions& options, Instant now) {
  kill.extend_for_saves(saves_, job.stop_grace, options, now);
}

void LiveAttempt::bring_up(Job& job, Rank rank) {
  RankState& state = job.ranks[static_cast<size_t>(rank.value())];
  if (state.life != RankState::Life::kAssigned) return;
  state.life = RankState::Life::kUp;
  --assigned_;
}

void LiveAttempt::end_rank(Job& job, Rank rank) {
  RankState& state = job.ranks[static_cast<size_t>(rank.value())];
  assigned_ -= state.life == RankState::Life::kAssigned ? 1 : 0;
  left_ -= state.life == RankState::Life::kExited ? 0 : 1;
  state.life = RankState::Life::kExited;
  // The rank's last page may show a save that will not be completed.
  saves_.remove(state.checkpoints);
  state.checkpoints.saving_mib = state.checkpoints.written_mib = 0;
  progress.forget(rank);
  links.forget(rank);
}

void LiveAttempt::revive_rank(Job& job, Rank rank) {
  RankState& state = job.ranks[static_cast<size_t>(rank.value())];
  if (state.life != RankState::Life::kExited) return;
  state.life = RankState::Life::kUp;
  ++left_;
}

std::string LiveAttempt::mark_unreachable(const Worker& worker, IncidentBook& incidents,
                                          const CoreTime& time) {
  (void)ladder.receive_pages(worker.name);  // its pages are no longer awaited
  return coordinator::mark_unreachable(incidents, reach, incident, worker, time);
}

std::optional<LadderStep> LiveAttempt::mark_reachable(const Job& job, const WorkerName& name,
                                                      std::string_view how, IncidentBook& incidents,
                                                      DumpTable& dumps, const CoreTime& time) {
  const std::string text =
      coordinator::mark_reachable(incidents, reach, incident, name, how, time.unix_ns);
  if (!reach.unreachable.empty()) return std::nullopt;
  return ladder.resume_reachable(job, text, dumps);
}

AttemptRecord LiveAttempt::record(const Job& job) const {
  AttemptRecord record;
  record.job = job.id;
  record.attempt = job.attempt;
  record.started_unix_ns = job.started_unix_ns;
  record.up_unix_ns = job.up_unix_ns;
  record.nodes = nodes_now(job);
  record.ranks = static_cast<int32_t>(job.placement.size());
  record.revision = job.revision;
  std::vector<std::string> names;
  for (const WorkerName& name : nodes_of(job.placement)) names.push_back(name.value());
  record.workers = fold_names(names, kAttemptWorkersBytesMax);
  record.first_step = progress.steps.base_step();
  record.last_step = progress.steps.newest_step();
  // The page of a rank that ends quickly may not be seen.
  for (const RankExit& exit : job.exits)
    record.last_step = std::max(record.last_step, exit.last_step);
  return record;
}

AttemptRecord LiveAttempt::record_of_end(const Job& job, std::string end, int64_t unix_ns) const {
  AttemptRecord ended = record(job);
  ended.ended_unix_ns = unix_ns;
  ended.end = std::move(end);
  const bool has_fault =
      job.state == JobState::kRestarting && !job.faults.empty() && !is_preempted(job.faults.back());
  if (has_fault) ended.incident = job.recovering;
  return ended;
}

void LiveAttempt::expect_ends(Job& job, Duration grace, const CoreOptions& options, Instant now) {
  start_deadline.reset();
  victim_deadline.reset();
  job.stop_grace = grace;
  kill.expect_ends(grace, waits_for_save(job, options), options, now);
}

const std::optional<CutLink>& LiveAttempt::cut_link(const Job& job, const Fleet& fleet,
                                                    Instant now) {
  constexpr Duration kCutLinkAgeMax = std::chrono::milliseconds(200);
  if (links.empty()) {
    cut_link_.reset();
  } else if (cut_link_at_ + kCutLinkAgeMax <= now) {
    cut_link_ = find_cut_link(view(job), links, fleet, now);
    cut_link_at_ = now;
  }
  return cut_link_;
}

LadderView LiveAttempt::ladder_view(const Job& job, const Fleet& fleet, Instant now) {
  const std::optional<CutLink>& cut = cut_link(job, fleet, now);
  // Only a confirmed link blames a node.
  const bool counts =
      cut && (!cut->peer.value().empty() || cut_link_due(*cut, progress.hang, true) <= now);
  return {job, ranks, reach.unreachable, victim_deadline.has_value(), counts ? cut->sentence : ""};
}

void LiveAttempt::release(IncidentBook& incidents) const {
  ladder.release(incidents);
  if (reach.silence) incidents.settle(*reach.silence);
}

void LiveAttempt::excuse(Duration time, Instant now) {
  progress.hang.excuse(time);
  growth.excuse(time);
  links.excuse(time);
  ladder.excuse(time);
  kill.excuse(time, now);
  if (start_deadline) *start_deadline += time;
  if (victim_deadline) *victim_deadline += time;
}

std::optional<Instant> LiveAttempt::next_deadline(const Job& job, const Fleet& fleet,
                                                  Instant now) const {
  std::optional<Instant> next;
  const auto consider = [&next](std::optional<Instant> t) {
    if (t && (!next || *t < *next)) next = t;
  };
  consider(start_deadline);
  if (victim_deadline && !awaits_a_worker(job, ranks, fleet)) consider(victim_deadline);
  const bool climbs = is_running(job.state) && !job.cancel_requested;
  if (climbs || job.state == JobState::kRestarting) consider(reach.next_check);
  if (climbs && job.state != JobState::kDumping && !victim_deadline) {
    const Instant due = progress.hang.due();
    const bool waits = job.state == JobState::kRunning || due > now;
    if (waits && due != HangDetector::kNever) consider(due);
    const Instant probe = progress.hang.next_probe();
    const bool probes = job.state == JobState::kRunning && !ladder.suspicion().probe;
    if (probes && probe > now && probe != HangDetector::kNever) consider(probe);
    const std::optional<Instant>& next_dump = ladder.suspicion().next_dump;
    if (next_dump && *next_dump > now) consider(next_dump);
  }
  if (kill.killed_at) consider(kill.next_check);
  return next;
}

}  // namespace muster::coordinator

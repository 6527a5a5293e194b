// Starting, stopping and ending ranks.
#include <algorithm>
#include <csignal>
#include <limits>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "common/process/exit_code.h"
#include "common/progress/save_progress.h"
#include "common/text/absl_view.h"
#include "worker/core/core.h"

namespace muster::worker {
namespace {

// Bounds the memory of reports if the coordinator never acknowledges.
constexpr size_t kReportsMax = 16'384;
// Number of reports that keep their evidence, some 20 kB each: above the number of ranks of a node.
constexpr size_t kEvidenceReportsMax = 1'024;
// Recognises every late message of a busy fleet; an entry takes a few dozen bytes.
constexpr size_t kJobsRememberedMax = 10'000;
// A day: longer than any checkpoint, and far from overflowing the clock.
constexpr Duration kGraceMax = std::chrono::hours(24);
// Ranks are 32-bit numbers; a larger world is a garbled message.
constexpr int64_t kWorldSizeMax = 1 << 24;
// One line for people.
constexpr size_t kDetailBytesMax = 1'024;

std::string describe(const Launch& launch) {
  return to_string(LaunchKey{launch.job, launch.attempt});
}

}  // namespace

void Core::on(const StartRanks& event, Instant now, ActionList& out) {
  const Launch& launch = event.launch;
  if (is_stale(event.epoch, "StartRanks", out)) return;
  // A list longer than any node's ranks is garbage and not answered.
  if (launch.job.value() == 0 || launch.attempt.value() == 0 || launch.ranks.empty() ||
      launch.ranks.size() > size_t{kRanksPerNodeMax} ||
      reports_.size() + unsettled_.size() + launch.ranks.size() > kReportsMax) {
    out.push_back(Note{true, absl::StrCat("ignoring a StartRanks for ", describe(launch), " with ",
                                          launch.ranks.size(), " ranks: no such launch can be")});
    return;
  }
  const Seen seen = seen_[launch.job];
  if (launch.attempt < seen.attempt || (launch.attempt == seen.attempt && seen.started)) {
    out.push_back(
        Note{false, absl::StrCat("ignoring a StartRanks for ", describe(launch), ": attempt ",
                                 seen.attempt.value(), " has been seen already")});
    return;
  }
  const bool stopped = launch.attempt == seen.attempt && seen.stopped;
  Launch accepted = launch;
  std::string reason = stopped ? "stopped before it was started" : refusal_reason(launch);
  remember(launch.job, {launch.attempt, true, stopped});
  stop_older(launch.job, launch.attempt, now, out);
  ExitCause cause = ExitCause::kUnknown;
  if (reason.empty()) reason = choose_gpus(accepted, cause);
  if (!reason.empty()) return refuse(launch, reason, cause, out);
  const auto shared = std::make_shared<const Launch>(std::move(accepted));
  for (const RankAssignment& assignment : launch.ranks) {
    RankState rank;
    rank.launch = shared;
    rank.local_rank = assignment.local_rank;
    ranks_.emplace(RankKey{launch.job, launch.attempt, assignment.rank}, std::move(rank));
  }
  yield_to_ranks(now, out);
  spawn_ready(out);
}

// The coordinator considers a superseded attempt ended; only its processes still run.
void Core::stop_older(JobId job, Attempt attempt, Instant now, ActionList& out) {
  for (const RankKey& key : keys_of(job)) {
    const auto rank = ranks_.find(key);
    if (rank == ranks_.end() || key.attempt >= attempt) continue;
    stop(key, rank->second, Duration::zero(), "a newer attempt replaces it", now, out);
  }
}

void Core::on(const StopRanks& event, Instant now, ActionList& out) {
  if (is_stale(event.epoch, "StopRanks", out)) return;
  if (event.job.value() == 0 || event.attempt.value() == 0) return;
  Seen seen = seen_[event.job];
  if (event.attempt > seen.attempt) seen = {event.attempt, false, true};
  if (event.attempt == seen.attempt) seen.stopped = true;
  remember(event.job, seen);
  for (const RankKey& key : keys_of(event.job)) {
    const auto rank = ranks_.find(key);
    if (rank == ranks_.end() || key.attempt != event.attempt) continue;
    const bool waits = event.waits_for_save && event.grace > Duration::zero();
    if (waits && rank->second.waits_for_save) continue;  // repeated after a reconnection
    rank->second.waits_for_save = waits;
    rank->second.stop_grace = std::min(event.grace, kGraceMax);
    stop(key, rank->second, event.grace, event.reason, now, out);
  }
  answer_for_absent(event, out);
}

// A process without a handler would die of the signal: its page must declare one.
void Core::on(const SaveCheckpoint& event, Instant, ActionList& out) {
  if (is_stale(event.epoch, "SaveCheckpoint", out)) return;
  const auto rank = ranks_.find(event.key);
  const bool accepts_it = rank != ranks_.end() && rank->second.life == Life::kUp &&
                          rank->second.figures.checkpoints.on_request != 0;
  if (accepts_it) {
    out.push_back(SignalRank{event.key, SIGUSR2});
  } else {
    out.push_back(
        Note{true, absl::StrCat(to_string(event.key),
                                " gets no checkpoint request: it is not on this worker, or "
                                "its page accepts none")});
  }
}

// The coordinator waits for the end of each rank, also of ranks that never started here because
// their StartRanks was lost or refused. Ranks whose end was reported are not among them.
void Core::answer_for_absent(const StopRanks& event, ActionList& out) {
  if (reports_.size() + unsettled_.size() + event.ranks.size() > kReportsMax) {
    out.push_back(Note{true, absl::StrCat("not answering for ", event.ranks.size(), " ranks of ",
                                          to_string(LaunchKey{event.job, event.attempt}),
                                          ": too many reports wait")});
    return;
  }
  std::set<RankKey> known;
  for (const auto& [id, report] : reports_) known.insert(report.key);
  for (const auto& [key, rank] : ranks_) known.insert(key);
  for (const Rank rank : event.ranks) {
    const RankKey key{event.job, event.attempt, rank};
    if (!known.insert(key).second) continue;
    SendRankExited exited;
    exited.key = key;
    exited.exit_code = to_int(ExitCode::kFailure);
    exited.detail = "not running here";
    report(std::move(exited), out);
  }
  // Ranks elsewhere may have contacted this worker's rendezvous for a rank 0 that never started.
  const bool has_ranks = std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
    return rank.first.launch() == LaunchKey{event.job, event.attempt};
  });
  if (!has_ranks) out.push_back(EndLaunch{{event.job, event.attempt}});
}

void Core::on(const RankStarted& event, Instant now, ActionList& out) {
  const auto found = ranks_.find(event.key);
  if (found == ranks_.end() || found->second.life != Life::kSpawning) return;
  RankState& rank = found->second;
  rank.life = Life::kUp;
  rank.pid = event.pid;
  // If output is the only sign of progress, there was none yet.
  if (!rank.launch->spec.output_is_progress()) rank.figures.last_progress = now;
  rank.figures.phase_start = now;
  // The ranks of a job start at the same time on all its workers, so their heartbeats would come in
  // step.
  if (heartbeat_at_ && now + heartbeat_interval() < *heartbeat_at_)
    heartbeat_at_ = now + std::chrono::duration_cast<Duration>(heartbeat_interval() * jitter());
  if (rank.killed) {
    out.push_back(SignalRank{event.key, SIGKILL});
  } else if (rank.terminated) {
    out.push_back(SignalRank{event.key, SIGTERM});
  }
  // The coordinator waits until every rank is up: sends a heartbeat at once instead of at the next
  // interval.
  const bool all_up = std::none_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
    return other.second.launch == rank.launch && other.second.life != Life::kUp;
  });
  if (all_up) send_heartbeat(now, out);
}

void Core::on(const SpawnFailed& event, Instant now, ActionList& out) {
  SendRankExited exited;
  exited.exit_code = event.exit_code;
  exited.detail = absl::StrCat("could not be started: ", event.reason);
  exited.cause = event.cause;
  end_rank(event.key, std::move(exited), now, out);
}

void Core::on(const RankReaped& event, Instant now, ActionList& out) {
  SendRankExited exited;
  exited.exit_code = event.signal != 0 ? -1 : event.exit_code;
  exited.signal = event.signal;
  exited.last_step = event.last_step;
  exited.detail = event.detail;
  exited.cause = event.cause;
  exited.lost_link = event.lost_link;
  exited.link_is_down = event.link_is_down;
  exited.told_to_stop = event.worker_left;
  exited.output_incomplete = event.output_incomplete;
  // Reports may wait for an absent coordinator for long.
  if (reports_.size() < kEvidenceReportsMax) exited.evidence = event.evidence;
  const auto rank = ranks_.find(event.key);
  if (rank != ranks_.end() && event.figures) take_figures(rank->second, *event.figures, now);
  end_rank(event.key, std::move(exited), now, out);
}

void Core::end_rank(const RankKey& key, SendRankExited exited, Instant now, ActionList& out) {
  const auto found = ranks_.find(key);
  if (found == ranks_.end()) return;
  const RankState& rank = found->second;
  exited.key = key;
  exited.told_to_stop = exited.told_to_stop || is_ending(rank);
  if (exited.last_step < 0) exited.last_step = rank.figures.step;
  if (exited.detail.empty() && !rank.stop_reason.empty()) {
    exited.detail = absl::StrCat("stopped: ", rank.stop_reason);
  }
  if (exited.detail.size() > kDetailBytesMax) exited.detail.resize(kDetailBytesMax);
  const bool disowned = rank.disowned;
  if (!disowned && rank.life == Life::kUp && rank.figures.step >= 0) {
    last_figures_[next_report_id_] = {key, rank.pid, rank.figures, Duration::zero(),
                                      Duration::zero()};
    if (rank.dirty) send_last_figures(next_report_id_, now, out);
  }
  ranks_.erase(found);
  if (!disowned) report(std::move(exited), out);
  if (disowned) {
    out.push_back(DropLog{key});
    end_launch(key.launch(), out);
  }
  const bool last = std::none_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
    return other.first.launch() == key.launch();
  });
  if (last) out.push_back(EndLaunch{key.launch()});
  spawn_ready(out);
  leave_when_done(now, out);
}

// Starts waiting ranks in rank order, as far as older attempts are reaped and slots and GPUs are
// free, and no deep check is being killed.
void Core::spawn_ready(ActionList& out) {
  if (leaving_ || check_gone_by_) return;
  auto alive = std::count_if(ranks_.begin(), ranks_.end(),
                             [](const auto& rank) { return rank.second.life != Life::kWaiting; });
  const RankKey* oldest = nullptr;  // oldest rank of the job that the loop has reached
  for (auto& [key, rank] : ranks_) {
    if (oldest == nullptr || oldest->job != key.job) oldest = &key;
    const bool older_attempt_lives = oldest->attempt != key.attempt;
    if (rank.life != Life::kWaiting || older_attempt_lives || alive >= options_.slots ||
        !has_its_gpus(*rank.launch))
      continue;
    rank.life = Life::kSpawning;
    ++alive;
    // A launch of another coordinator with the same numbers may have left a folder, which this
    // launch takes over.
    if (unfinished_.insert(key.launch()).second) std::erase(finished_, key.launch());
    out.push_back(SpawnRank{key, rank.local_rank, rank.launch, store_.value_or(StoreId{})});
  }
}

void Core::stop(const RankKey& key, RankState& rank, Duration grace, const std::string& reason,
                Instant now, ActionList& out) {
  if (rank.stop_reason.empty()) rank.stop_reason = reason.substr(0, kDetailBytesMax);
  if (rank.life == Life::kWaiting) {
    SendRankExited exited;
    exited.exit_code = -1;
    exited.signal = SIGTERM;
    exited.detail = absl::StrCat("stopped before it was started: ", rank.stop_reason);
    return end_rank(key, std::move(exited), now, out);
  }
  const bool up = rank.life == Life::kUp;
  if (leaving_) grace = std::min(grace, grace_left(now));
  if (grace <= Duration::zero()) {
    rank.kill_at.reset();
    // Also a child that hangs before it has become its program.
    if (!rank.killed) out.push_back(SignalRank{key, SIGKILL});
    rank.killed = true;
    return;
  }
  if (rank.killed) return;
  if (!rank.terminated && up) out.push_back(SignalRank{key, stop_signal(rank, now)});
  rank.terminated = true;
  const Instant deadline = now + std::min(grace, kGraceMax);
  rank.kill_at = std::min(rank.kill_at.value_or(deadline), deadline);
}

// A rank may have nothing to write and wait for one that has: all ranks of a launch wait alike.
void Core::extend_for_saves(Instant now) {
  std::map<LaunchKey, SaveProgress> saves;
  for (const auto& [key, rank] : ranks_) saves[key.launch()].add(rank.figures.checkpoints);
  for (auto& [key, rank] : ranks_) {
    const SaveProgress& save = saves[key.launch()];
    if (!rank.waits_for_save || !rank.kill_at || rank.save == save) continue;
    rank.save = save;
    rank.kill_at = now + save_wait(save, rank.stop_grace);
    if (leaving_) rank.kill_at = std::min(*rank.kill_at, leave_by_);
  }
}

// Systemd and Slurm signal the ranks together with the worker. A trainer that receives a second
// SIGTERM later would end in the middle of its save (trainer_core/rank/signal_watcher.h).
int Core::stop_signal(const RankState& rank, Instant now) const {
  const bool is_late = leaving_ && now - leave_requested_at() >= kCoordinatorAnswerMax;
  return is_late && rank.launch->spec.command.empty() ? SIGUSR1 : SIGTERM;
}

void Core::stop_all(Duration grace, const std::string& reason, Instant now, ActionList& out) {
  stop_if([](const RankState&) { return true; }, grace, reason, now, out);
}

void Core::stop_if(absl::FunctionRef<bool(const RankState&)> is_selected, Duration grace,
                   const std::string& reason, Instant now, ActionList& out) {
  std::vector<RankKey> keys;
  for (const auto& [key, rank] : ranks_)
    if (is_selected(rank)) keys.push_back(key);
  for (const RankKey& key : keys) {
    const auto rank = ranks_.find(key);
    if (rank != ranks_.end()) stop(key, rank->second, grace, reason, now, out);
  }
}

// Returns the reason why the launch cannot run here, or "".
std::string Core::refusal_reason(const Launch& launch) const {
  const JobSpec& spec = launch.spec;
  if (leaving_) return "its worker is leaving";
  const int64_t world_size = int64_t{spec.nodes} * spec.ranks_per_node;
  if (spec.nodes < 1 || spec.ranks_per_node < 1 || world_size > kWorldSizeMax) {
    return absl::StrCat(spec.nodes, " nodes of ", spec.ranks_per_node, " ranks are no world");
  }
  std::set<Rank> ranks;
  std::set<int32_t> local_ranks;
  for (const auto& [rank, local_rank] : launch.ranks) {
    const bool in_world = rank.value() >= 0 && rank.value() < world_size;
    if (!in_world || !ranks.insert(rank).second) {
      return absl::StrCat("rank ", rank.value(), " is listed twice or outside 0…", world_size - 1);
    }
    const bool on_node = local_rank >= 0 && local_rank < spec.ranks_per_node;
    if (!on_node || !local_ranks.insert(local_rank).second) {
      return absl::StrCat("local rank ", local_rank, " is listed twice or outside 0…",
                          spec.ranks_per_node - 1);
    }
  }
  // Ranks of the attempt that this one replaces are ending and do not count.
  const auto used = std::count_if(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
    return rank.first.job != launch.job && !is_superseded(rank.first);
  });
  const auto free = options_.slots - static_cast<int32_t>(used);
  if (static_cast<int64_t>(launch.ranks.size()) <= free) return "";
  return absl::StrCat("the launch needs ", launch.ranks.size(), " slots and worker ",
                      options_.name.value(), " has ", free, " of ", options_.slots, " free");
}

bool Core::is_superseded(const RankKey& key) const {
  const auto seen = seen_.find(key.job);
  return seen != seen_.end() && key.attempt < seen->second.attempt;
}

void Core::refuse(const Launch& launch, const std::string& reason, ExitCause cause,
                  ActionList& out) {
  out.push_back(Note{true, absl::StrCat("refusing ", describe(launch), ": ", reason)});
  std::set<Rank> refused;
  for (const RankAssignment& assignment : launch.ranks) {
    if (!refused.insert(assignment.rank).second) continue;
    SendRankExited exited;
    exited.key = {launch.job, launch.attempt, assignment.rank};
    // A job that was sent to a leaving worker must be placed elsewhere without using up a restart.
    exited.exit_code = to_int(leaving_ ? ExitCode::kPreempted : ExitCode::kFailure);
    exited.detail = absl::StrCat("could not be started: ", reason);
    exited.cause = cause;
    report(std::move(exited), out);
  }
  out.push_back(EndLaunch{{launch.job, launch.attempt}});
}

void Core::remember(JobId job, const Seen& seen) {
  seen_[job] = seen;
  if (seen_.size() <= kJobsRememberedMax) return;
  const auto forgettable = std::find_if(seen_.begin(), seen_.end(), [&](const auto& entry) {
    return entry.first != job && keys_of(entry.first).empty();
  });
  if (forgettable != seen_.end()) seen_.erase(forgettable);
}

std::vector<RankKey> Core::keys_of(JobId job) const {
  std::vector<RankKey> keys;
  const RankKey first{job, Attempt(0), Rank(std::numeric_limits<int32_t>::min())};
  for (auto it = ranks_.lower_bound(first); it != ranks_.end() && it->first.job == job; ++it) {
    keys.push_back(it->first);
  }
  return keys;
}

}  // namespace muster::worker

#include "coordinator/core/attempt/attempt_table.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/placement/hosts.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

std::vector<JobId> AttemptTable::jobs() const {
  std::vector<JobId> jobs;
  jobs.reserve(attempts_.size());
  for (const auto& [id, attempt] : attempts_) jobs.push_back(id);
  return jobs;
}

LiveAttempt* AttemptTable::find(JobId id) {
  const auto found = attempts_.find(id);
  return found == attempts_.end() ? nullptr : &found->second;
}

const LiveAttempt* AttemptTable::find(JobId id) const {
  const auto found = attempts_.find(id);
  return found == attempts_.end() ? nullptr : &found->second;
}

const std::set<WorkerName>* AttemptTable::unreachable(JobId id) const {
  const LiveAttempt* attempt = find(id);
  return attempt == nullptr ? nullptr : &attempt->reach.unreachable;
}

LiveAttempt& AttemptTable::begin(const Job& job, const CoreOptions& options, Instant now) {
  LiveAttempt& attempt =
      attempts_.insert_or_assign(job.id, LiveAttempt(options, job, now)).first->second;
  attempt.start_deadline = now + options.start_budget;
  attempt.began = now;
  if (const auto found = earlier_.find(job.id); found != earlier_.end()) {
    auto& [ranks, revision] = found->second;
    if (revision == job.revision && ranks.ranks() == job.placement.size())
      attempt.progress.rank_history = std::move(ranks);
    earlier_.erase(found);
  }
  return attempt;
}

LiveAttempt& AttemptTable::restore(Job& job, const CoreOptions& options, Instant now) {
  job.ranks.assign(job.placement.size(), RankState{});
  if (is_running(job.state)) job.state = JobState::kRunning;
  const bool undecided = job.state != JobState::kRestarting && !job.cancel_requested;
  bool has_failed = false;
  for (const RankExit& exit : job.exits) {
    job.ranks[static_cast<size_t>(exit.rank.value())].life = RankState::Life::kExited;
    has_failed = has_failed || !is_success(exit);
  }
  LiveAttempt& attempt = attempts_.emplace(job.id, LiveAttempt(options, job, now)).first->second;
  if (is_running(job.state)) attempt.up_at = now;
  if (undecided && has_failed) attempt.victim_deadline = now + options.culprit_wait;
  if (undecided && job.state == JobState::kStarting)
    attempt.start_deadline = now + options.start_budget;
  return attempt;
}

void AttemptTable::end(const Job& job, IncidentBook& incidents) {
  const auto found = attempts_.find(job.id);
  if (found == attempts_.end()) return;
  found->second.release(incidents);
  earlier_.insert_or_assign(job.id,
                            Times{std::move(found->second.progress.rank_history), job.revision});
  attempts_.erase(found);
}

void AttemptTable::end_last(const Job& job, IncidentBook& incidents) {
  end(job, incidents);
  earlier_.erase(job.id);
}

Duration AttemptTable::loss_after(const Job& job, size_t missing, const JobTable& jobs,
                                  const Fleet& fleet, const NodeBook& nodes,
                                  const CoreOptions& options, const CoreTime& time) const {
  return has_replacement_nodes(job, missing, at(job.id).ranks, jobs, this->jobs(), fleet, nodes,
                               time)
             ? options.unreachable_confirm
             : options.unreachable_wait;
}

Instant AttemptTable::loss_confirmable_at(const Job& job, const JobTable& jobs, const Fleet& fleet,
                                          const NodeBook& nodes, const CoreOptions& options,
                                          const CoreTime& time) const {
  const Reach& reach = at(job.id).reach;
  const size_t missing = reach.unreachable.size();
  if (missing == 0) return {};
  return confirmable_at(reach, fleet, loss_after(job, missing, jobs, fleet, nodes, options, time));
}

void AttemptTable::excuse(Duration time, Instant now) {
  for (auto& [id, attempt] : attempts_) attempt.excuse(time, now);
}

std::optional<Instant> AttemptTable::next_deadline(const JobTable& jobs, const Fleet& fleet,
                                                   Instant now) const {
  std::optional<Instant> next;
  for (const auto& [id, attempt] : attempts_) {
    const std::optional<Instant> due = attempt.next_deadline(jobs.at(id), fleet, now);
    if (due && (!next || *due < *next)) next = due;
  }
  return next;
}

}  // namespace muster::coordinator

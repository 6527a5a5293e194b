#include "coordinator/core/accounting/ledger_table.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/incident/recovery.h"

namespace muster::coordinator {
namespace {

// The interval between two writes of an account. After a restart the ranks' pages contain the newer
// time again, except evaluations.
constexpr Duration kStoredEvery = std::chrono::minutes(5);
// The minimum interval between two writes after new checkpoints. If all ranks are killed together
// with the coordinator, no page is left, and only the stored account shows the newest checkpoint.
// The interval is bounded, because some jobs save after each step.
constexpr Duration kCheckpointsStoredEvery = std::chrono::seconds(1);

}  // namespace

void LedgerTable::restore(const Job& job, Instant now) {
  const Account& account = job.account;
  Ledger& ledger =
      books_.insert_or_assign(job.id, Book{Ledger(account, now), now, account.checkpoint_step})
          .first->second.ledger;
  if (ledger.has_started() || !is_live(job.state)) return;
  ledger.started(now);
  if (is_running(job.state)) ledger.running(job.spec.is_program(), now);
}

void LedgerTable::enter(const Job& job, JobTransition transition, IncidentBook& incidents,
                        const CoreTime& time) {
  mark_transition(incidents, job, transition, time.unix_ns);
  Ledger& ledger = of(job.id);
  const Instant now = time.now;
  switch (transition) {
    case JobTransition::kStarted:
      return ledger.started(now);
    case JobTransition::kUp:
      return ledger.running(job.spec.is_program(), now);
    case JobTransition::kCancelled:
      return ledger.stopping(LossCause::kNone, now);
    case JobTransition::kGone:
      return ledger.gone(now);
  }
}

void LedgerTable::observe(const Job& job, const RankProgress& progress, const CoreTime& time) {
  const auto ago = [&](Duration age) {
    return time.now - std::clamp(age, Duration::zero(), time.now.time_since_epoch());
  };
  Ledger& ledger = of(job.id);
  const bool is_rank_0 = progress.rank == Rank(0);
  ledger.observe({.is_rank_0 = is_rank_0,
                  .phase = progress.phase,
                  .phase_start = ago(progress.phase_age),
                  // A program without a hang limit may report nothing, so it counts as progressing.
                  .last_progress = job.spec.is_program() && job.spec.hang_after_seconds == 0
                                       ? time.now
                                       : ago(progress.last_progress_age),
                  .step = progress.step,
                  .steps_made = progress.step_times.total(),
                  .steps_seconds = progress.step_times.seconds,
                  .stall_seconds = progress.checkpoints.stall_seconds},
                 time.now);
  ledger.observe_checkpoint(is_rank_0, progress.checkpoint_step, progress.checkpoints.saved,
                            time.unix_ns);
}

Account LedgerTable::close(JobId job, Instant now, int64_t unix_ns) {
  Ledger& ledger = of(job);
  ledger.ended(now);
  const Account account = ledger.account(now, unix_ns);
  books_.erase(job);
  return account;
}

void LedgerTable::bridge(Instant now, int64_t unix_ns) {
  if (unix_ns == 0 || std::exchange(bridged_, true)) return;
  for (auto& [job, book] : books_) book.ledger.bridge(now, unix_ns);
}

Account LedgerTable::take(JobId job, const Account& otherwise, Instant now, int64_t unix_ns) {
  const auto found = books_.find(job);
  if (found == books_.end()) return otherwise;
  found->second.taken = now;
  found->second.taken_checkpoint = found->second.ledger.checkpoint_step();
  return found->second.ledger.account(now, unix_ns);
}

Account LedgerTable::current(JobId job, const Account& otherwise, Instant now) const {
  const auto found = books_.find(job);
  return found == books_.end() ? otherwise : found->second.ledger.account(now, otherwise.unix_ns);
}

bool LedgerTable::is_due(JobId job, Instant now) const {
  const Book& book = books_.at(job);
  const bool newer = book.ledger.checkpoint_step() > book.taken_checkpoint;
  return book.taken + (newer ? kCheckpointsStoredEvery : kStoredEvery) <= now;
}

}  // namespace muster::coordinator

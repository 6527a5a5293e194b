// Keeps a job's account: every moment since its first start belongs to one class and one cause, so
// the classes always add up to the wall time.
//
//   ETTR = productive time / wall time since the first start
//
// as in Meta's "Revisiting Reliability in Large-Scale Machine Learning Research Clusters"
// (effective training time ratio; the Llama 3 report's "effective training time"), but for the time
// in the queue before the first start, which is counted apart: it is the cluster's, not the
// training's.
//
// Productive are steps beyond the highest that any attempt had completed; work on a step counts
// when the step is completed. Time is settled when something is learned: a completed step, another
// phase, a fault. Until then it is pending, and whatever comes next says what it was: so what
// trainers did while no coordinator was there is settled by what their steps say afterwards.
//
//   source                            what it settles
//   steps of any rank                 productive, recomputing
//   the phase of rank 0               loading, evaluating, checkpoint stall (by phase)
//   rank 0's stall_seconds            checkpoint stall: all of it, also of stalls that no heartbeat
//                                     has seen
//   fault, with the last progress     what of a step was done (recomputing), and standing still
//
// A program that never reports a phase or a step is productive while it is RUNNING: there is
// nothing else to go by.
//
// Beside the time it keeps when the newest checkpoint came, because what lies behind that is what a
// fault would cost.
//
// Durations are of the monotonic clock. The wall clock bridges a coordinator's restart alone
// (bridge()). Pure; one thread at a time; whatever its input, it stays consistent: instants out of
// order count as no time.
#pragma once

#include <cstdint>

#include "common/progress_page.h"
#include "common/time.h"
#include "coordinator/core/records/account.h"

namespace muster::coordinator {

// A program that was silent for so long while it ran is taken for one that never reports anything.
constexpr Duration kSilentForGood = std::chrono::minutes(10);

class Ledger {
 public:
  // As it was stored, or a new one. Of an account with a time, what has passed since is not known
  // before bridge().
  Ledger(const Account& account, Instant now) : account_(account), since_(now) {}

  // The first news after a restart: what has passed since the account was stored counts, by the
  // wall clock. Backwards is no time. Of it nothing is known but what pages say later: without
  // them, everything may have stood still.
  void bridge(Instant now, int64_t unix_ns);

  void started(Instant now);                      // the order to start is sent
  void running(bool may_be_silent, Instant now);  // every rank is up
  // The job is cancelled or, with a cause, preempted: its ranks are asked to leave, and may
  // complete steps on their way.
  void stopping(LossCause cause, Instant now);
  void fault(IncidentKind kind, Instant last_progress, Instant now);
  void gone(Instant now);  // every rank is, and the job waits
  void ended(Instant now);

  // The contents of a rank's page.
  struct Page {
    bool speaks_for_job = false;  // rank 0
    Phase phase = Phase::kInit;
    Instant phase_start{};
    Instant last_progress{};
    int64_t step = -1;
    uint64_t steps_made = 0;   // by this attempt …
    double steps_seconds = 0;  // … and what they took
    double stall_seconds = 0;
  };
  void observe(const Page& page, Instant now);
  // Observes the newest whole checkpoint that a rank reports: its steps, and how many its attempt
  // has saved. A restored one is not new.
  void observe_checkpoint(bool speaks_for_job, int64_t step, uint64_t saves, int64_t unix_ns);

  int64_t best_step() const { return account_.best_step; }
  int64_t checkpoint_step() const { return account_.checkpoint_step; }
  bool has_started() const { return account_.mode != Account::Mode::kQueued; }
  // As of `now`, for storing and showing.
  Account account(Instant now, int64_t unix_ns) const;

 private:
  void advance(Instant until);
  void enter(Account::Mode mode, Instant now);
  void add(TimeClass what, Duration time);
  void observe_phase(const Page& page, Instant now);
  void settle_steps(const Page& page);
  void end_pending(TimeClass what);

  Account account_;
  Instant since_;  // all before is in the account
  bool unreported_ =
      false;  // since bridge() no page has said what was done in the time that it added
};

// All of it: what is pending counts as what it will most likely be.
LossTable table_of(const Account& account);

}  // namespace muster::coordinator

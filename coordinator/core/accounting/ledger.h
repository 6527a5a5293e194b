// Updates a job's account. Every moment since the first start belongs to exactly one class and one
// cause, so the classes always add up to the wall time.
//
//   ETTR = productive time / wall time since the first start
//
// as in Meta's "Revisiting Reliability in Large-Scale Machine Learning Research Clusters"
// (effective training time ratio; the Llama 3 report's "effective training time"), except that
// queue time before the first start is counted separately, because that time depends on the cluster
// and not on the training.
//
// Steps beyond the highest that any attempt had completed are productive. Work on a step counts
// when the step is completed. New information settles time: a completed step, another phase, a
// fault. Until then time is pending, and the next information determines its class. The work of
// trainers during coordinator downtime is therefore classified by the steps that they report
// afterwards.
//
//   source                            classes that it settles
//   steps of any rank                 productive, recomputing
//   a step of rank 0 that falls       recomputing, until the highest step is reached again
//   the phase of rank 0               loading, evaluating, checkpoint stall (by phase)
//   rank 0's stall_seconds            checkpoint stall, including stalls that no heartbeat showed
//   fault, with the last progress     recomputing until the last progress (the unfinished step must
//                                     be repeated), then standing still
//
// A program that never reports a phase or a step is productive while it is RUNNING, because no
// other information exists.
//
// The ledger also records the time of the newest checkpoint, because a fault would cost the work
// since then.
//
// Durations use the monotonic clock. The wall clock is used only to bridge a coordinator restart
// (bridge()). Pure; called on one thread at a time. Consistent for any input: instants out of order
// count as zero time.
#pragma once

#include <cstdint>

#include "common/progress/progress_page.h"
#include "common/time/time.h"
#include "coordinator/core/records/account.h"

namespace muster::coordinator {

// A running program that was silent for this long counts as one that never reports anything.
constexpr Duration kSilentForGood = std::chrono::minutes(10);

class Ledger {
 public:
  // Opens a stored account or a new one. For a stored account with a time, bridge() must add the
  // time since.
  Ledger(const Account& account, Instant now) : account_(account), since_(now) {}

  // Adds the time since the account was stored, measured by the wall clock; a clock that was set
  // back adds none. Called with the first information after a restart. Only later pages can show
  // whether the ranks worked during this time; without such pages all of it may have been a
  // standstill.
  void bridge(Instant now, int64_t unix_ns);

  void started(Instant now);                      // the order to start is sent
  void running(bool may_be_silent, Instant now);  // every rank is up
  // The job is cancelled or, with a cause, preempted: its ranks are ordered to leave, and may
  // complete steps before they do.
  void stopping(LossCause cause, Instant now);
  // A fault has ended the attempt, whose last progress was at `last_progress`.
  void fault(IncidentKind kind, Instant last_progress, Instant now);
  void gone(Instant now);   // every rank has ended, and the job waits
  void ended(Instant now);  // the job has ended

  // The input from a rank's progress page.
  struct Page {
    bool is_rank_0 = false;  // rank 0
    Phase phase = Phase::kInit;
    Instant phase_start{};
    Instant last_progress{};
    int64_t step = -1;
    uint64_t steps_made = 0;   // steps made by this attempt
    double steps_seconds = 0;  // total time of steps_made
    double stall_seconds = 0;
  };
  // Settles time by the steps, the phase and the stalls that the page shows.
  void observe(const Page& page, Instant now);
  // Records the newest complete checkpoint that a rank reports: its number of steps, and the number
  // of checkpoints that this attempt has saved. A restored checkpoint is not new.
  void observe_checkpoint(bool is_rank_0, int64_t step, uint64_t saves, int64_t unix_ns);

  int64_t best_step() const { return account_.best_step; }
  int64_t checkpoint_step() const { return account_.checkpoint_step; }
  bool has_started() const { return account_.mode != Account::Mode::kQueued; }
  // Returns the account as of `now`, to be stored or displayed.
  Account account(Instant now, int64_t unix_ns) const;

 private:
  void advance(Instant until);
  void enter(Account::Mode mode, Instant now);
  void add(TimeClass what, Duration time);
  void observe_phase(const Page& page, Instant now);
  void settle_steps(const Page& page);
  void roll_back(const Page& page, Instant now);
  void end_pending(TimeClass what);

  Account account_;
  Instant since_;  // the account covers all time before
  // bridge() has added time, and no later page has shown how the ranks spent it.
  bool unreported_ = false;
  // The steps that rank 0 has made in this attempt. After a restart of the coordinator its first
  // page is not compared with an earlier one.
  uint64_t steps_made_ = UINT64_MAX;
  int64_t rank_0_step_ = -1;  // in its newest page
};

// Returns the account's time by class and cause. Pending time is assigned to its most likely class.
LossTable table_of(const Account& account);

}  // namespace muster::coordinator

#include "coordinator/core/accounting/ledger.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace muster::coordinator {
namespace {

using Activity = Account::Activity;
using Mode = Account::Mode;

// Returns the seconds on a page as a duration. They are outside input and are clamped.
Duration of_page(double seconds) {
  constexpr double kSecondsMax = 1e9;
  return std::isfinite(seconds)
             ? Duration(std::llround(std::clamp(seconds, 0.0, kSecondsMax) * 1e9))
             : Duration::zero();
}

Activity activity_in(Phase phase, uint64_t steps_made) {
  switch (phase) {
    case Phase::kInit:  // also the phase of a program that reports only steps
      return steps_made > 0 ? Activity::kStepping : Activity::kLoading;
    case Phase::kRendezvous:
    case Phase::kLoad:
    case Phase::kCompile:
    case Phase::kCheckpointRestore:
      return Activity::kLoading;
    case Phase::kData:
    case Phase::kStep:
      return Activity::kStepping;
    case Phase::kEval:
      return Activity::kEvaluating;
    case Phase::kCheckpointSave:
      return Activity::kSaving;
    case Phase::kShutdown:
      return Activity::kLeaving;
  }
  return Activity::kLoading;
}

TimeClass class_of(Activity activity) {
  switch (activity) {
    case Activity::kLoading:
      return TimeClass::kLoading;
    case Activity::kSaving:
      return TimeClass::kSaving;
    case Activity::kEvaluating:
      return TimeClass::kEvaluating;
    case Activity::kLeaving:
      return TimeClass::kStopping;
    case Activity::kSilent:
    case Activity::kStepping:
      return TimeClass::kProductive;
  }
  return TimeClass::kLoading;
}

// Returns whether the class of current work is known only when the work is completed.
bool is_pending(const Account& account) {
  if (account.mode == Mode::kStopping)
    return true;  // steps may be completed before the ranks leave
  return account.mode == Mode::kRunning &&
         (account.activity == Activity::kStepping || account.activity == Activity::kSilent);
}

void add_to(Account& account, TimeClass what, Duration time) {
  const LossCause cause = what == TimeClass::kProductive ? LossCause::kNone : account.cause;
  account.settled.at(what, cause) += time;
}

void spend(Account& account, Duration time) {
  if (is_pending(account)) {
    account.pending += time;
    return;
  }
  switch (account.mode) {
    case Mode::kQueued:
      account.queued += time;
      break;
    case Mode::kStarting:
      add_to(account, TimeClass::kStarting, time);
      break;
    case Mode::kRunning:
      if (account.activity == Activity::kSaving) account.stall_seconds += to_seconds(time);
      add_to(account, class_of(account.activity), time);
      break;
    case Mode::kWaiting:
      add_to(account, TimeClass::kWaiting, time);
      break;
    case Mode::kStopping:
    case Mode::kEnded:
      break;
  }
}

}  // namespace

void Ledger::advance(Instant until) {
  if (until <= since_) return;
  spend(account_, until - since_);
  since_ = until;
}

void Ledger::add(TimeClass what, Duration time) { add_to(account_, what, time); }

void Ledger::end_pending(TimeClass what) {
  add(what, std::exchange(account_.pending, Duration::zero()));
}

void Ledger::enter(Mode mode, Instant now) {
  advance(now);
  if (account_.mode == Mode::kStopping) end_pending(TimeClass::kStopping);
  if (account_.mode == Mode::kRunning) end_pending(TimeClass::kProductive);
  account_.mode = mode;
}

void Ledger::bridge(Instant now, int64_t unix_ns) {
  if (account_.unix_ns > 0)
    since_ = now - Duration(std::max<int64_t>(unix_ns - account_.unix_ns, 0));
  account_.unix_ns = unix_ns;
  unreported_ = true;
}

void Ledger::started(Instant now) {
  enter(Mode::kStarting, now);
  unreported_ = false;
  account_.step = -1;
  account_.stall_seconds = 0;
  account_.saves = -1;
  account_.was_silent = false;
  steps_made_ = 0;
  rank_0_step_ = -1;
}

void Ledger::running(bool may_be_silent, Instant now) {
  enter(Mode::kRunning, now);
  account_.activity =
      may_be_silent && !account_.has_reported ? Activity::kSilent : Activity::kLoading;
}

// The current step may still be completed. A program that reports nothing was productive until now.
void Ledger::stopping(LossCause cause, Instant now) {
  const bool is_silent = account_.mode == Mode::kRunning && account_.activity == Activity::kSilent;
  if (is_silent || !is_pending(account_)) enter(Mode::kStopping, now);
  account_.mode = Mode::kStopping;
  if (cause != LossCause::kNone) account_.cause = cause;
}

// Steps that were completed but not reported by a heartbeat do not count here; they count as
// productive when they are repeated.
void Ledger::fault(IncidentKind kind, Instant last_progress, Instant now) {
  now = std::max(now, since_);
  const bool running = account_.mode == Mode::kRunning;
  const bool stepping = running && account_.activity == Activity::kStepping;
  const bool silent = running && account_.activity == Activity::kSilent;
  // The downtime that bridge() added to `pending` may also have been a standstill.
  const Duration open = (stepping || silent ? account_.pending : Duration::zero()) + (now - since_);
  // A rank that dies while it loads was loading until then.
  const bool may_have_stood =
      stepping || kind == IncidentKind::kHang || kind == IncidentKind::kWorkerLost;
  Duration stood = running && may_have_stood
                       ? std::clamp(now - last_progress, Duration::zero(), open)
                       : Duration::zero();
  if (running && unreported_) stood = std::max(stood, now - since_);
  if (stepping || silent) {
    account_.pending = open - stood;
    if (silent) end_pending(TimeClass::kProductive);
  } else {
    advance(now - stood);
    if (account_.mode == Mode::kStopping) end_pending(TimeClass::kStopping);
  }
  since_ = now;
  unreported_ = false;
  account_.cause = cause_of(kind);
  end_pending(TimeClass::kRecomputing);
  add(TimeClass::kStandingStill, stood);
  account_.mode = Mode::kStopping;
}

void Ledger::gone(Instant now) { enter(Mode::kWaiting, now); }

void Ledger::ended(Instant now) { enter(Mode::kEnded, now); }

void Ledger::observe_phase(const Page& page, Instant now) {
  const bool shows_nothing = page.phase == Phase::kInit && page.steps_made == 0;
  if (account_.activity == Activity::kSilent) {
    if (shows_nothing) {
      const bool for_good = account_.pending + (now - since_) >= kSilentForGood;
      account_.was_silent = account_.was_silent || for_good;
      if (!account_.was_silent) return;
      advance(std::min(page.last_progress, now));
      end_pending(TimeClass::kProductive);
      return;
    }
    account_.activity = Activity::kLoading;
    if (!account_.was_silent) end_pending(TimeClass::kLoading);
  }
  if (!shows_nothing) account_.has_reported = true;
  const Activity next = activity_in(page.phase, page.steps_made);
  if (next == account_.activity) return;
  // After several short steps, the page's phase start is that of the newest step.
  const bool began_earlier =
      account_.activity == Activity::kLoading && next == Activity::kStepping && page.steps_made > 0;
  const Instant when =
      began_earlier ? page.last_progress - of_page(page.steps_seconds) : page.phase_start;
  advance(std::min(when, now));
  account_.activity = next;
}

void Ledger::observe(const Page& page, Instant now) {
  unreported_ = false;
  if (account_.mode != Mode::kRunning && account_.mode != Mode::kStopping) return;
  if (account_.mode == Mode::kRunning && page.is_rank_0) observe_phase(page, now);
  if (account_.step < 0 && page.step >= 0)
    account_.step = page.step - static_cast<int64_t>(std::min<uint64_t>(
                                    page.steps_made, static_cast<uint64_t>(page.step)));
  account_.best_step = std::max(account_.best_step, account_.step);
  if (page.is_rank_0) {
    // Other ranks may be ahead of rank 0, so its step is compared with its own earlier one.
    if (page.step < rank_0_step_ && page.steps_made > steps_made_) roll_back(page, now);
    steps_made_ = page.steps_made;
    rank_0_step_ = page.step;
  }
  if (page.step <= account_.step || page.steps_made == 0) return;
  // Settles steps that were completed before the current phase began, up to the last progress.
  if (is_pending(account_)) advance(std::min(page.last_progress, now));
  settle_steps(page);
}

// The counter has fallen although steps were made: the steps from here to the highest one are
// computed again, and the work since the last settled step was the first part of them.
void Ledger::roll_back(const Page& page, Instant now) {
  if (is_pending(account_)) advance(std::min(page.last_progress, now));
  add(TimeClass::kRecomputing, std::exchange(account_.pending, Duration::zero()));
  account_.step = page.step;
}

void Ledger::settle_steps(const Page& page) {
  const double unseen = page.stall_seconds - account_.stall_seconds;
  const Duration stalled = std::min(of_page(unseen), account_.pending);
  account_.stall_seconds = std::max(account_.stall_seconds, page.stall_seconds);
  add(TimeClass::kSaving, stalled);
  const Duration work = std::exchange(account_.pending, Duration::zero()) - stalled;
  const int64_t made = page.step - account_.step;
  const int64_t fresh = std::clamp<int64_t>(page.step - account_.best_step, 0, made);
  const double part = static_cast<double>(fresh) / static_cast<double>(made);
  const Duration productive =
      fresh == made ? work : Duration(std::llround(static_cast<double>(work.count()) * part));
  add(TimeClass::kRecomputing, work - productive);
  add(TimeClass::kProductive, productive);
  account_.step = page.step;
  account_.best_step = std::max(account_.best_step, page.step);
  if (fresh > 0 && account_.mode == Mode::kRunning) account_.cause = LossCause::kNone;
}

// Ranks report a checkpoint one after the other, so a lower step is new information only from rank
// 0: its first report in an attempt shows the step from which the attempt resumed, which may be an
// older checkpoint.
void Ledger::observe_checkpoint(bool is_rank_0, int64_t step, uint64_t saves, int64_t unix_ns) {
  if (step < 1) return;
  const auto saved = static_cast<int64_t>(std::min<uint64_t>(saves, INT64_MAX));
  const bool is_first_report = is_rank_0 && account_.saves < 0;
  const bool saved_since = is_rank_0 && saved > std::max<int64_t>(account_.saves, 0);
  if (step > account_.checkpoint_step || saved_since) account_.checkpoint_unix_ns = unix_ns;
  if (step > account_.checkpoint_step || saved_since || is_first_report)
    account_.checkpoint_step = step;
  if (is_rank_0) account_.saves = saved;
}

Account Ledger::account(Instant now, int64_t unix_ns) const {
  Account account = account_;
  if (now > since_) spend(account, now - since_);
  account.unix_ns = unix_ns;
  return account;
}

LossTable table_of(const Account& account) {
  LossTable table = account.settled;
  if (account.mode == Account::Mode::kStopping) {
    table.at(TimeClass::kStopping, account.cause) += account.pending;
  } else if (account.step >= 0 && account.step < account.best_step) {
    table.at(TimeClass::kRecomputing, account.cause) += account.pending;
  } else {
    table.at(TimeClass::kProductive, LossCause::kNone) += account.pending;
  }
  return table;
}

}  // namespace muster::coordinator

// The account of a job's time: a value, durable with the job. coordinator/core/accounting/ledger.h
// updates it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/time/time.h"
#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

// The classes of a job's time since its first start. All classes except the first are losses.
enum class TimeClass {
  kProductive,  // steps that no attempt has completed before
  kStarting,    // from the order to start until every rank is up
  // From then until the first step begins: loading libraries, rendezvous, compilation, restore.
  kLoading,
  kSaving,  // training is blocked by a checkpoint
  kEvaluating,
  // Repeating steps that were completed before, and work on a step that was never completed.
  kRecomputing,
  kStandingStill,  // from the last progress to the verdict
  kStopping,       // until every rank is gone
  kWaiting,        // back-off, and waiting for nodes
};
constexpr std::array<std::string_view, 9> kTimeClassNames = {
    "productive",  "starting",       "loading",  "checkpoint stall", "evaluating",
    "recomputing", "standing still", "stopping", "waiting"};
constexpr size_t kTimeClasses = kTimeClassNames.size();

// The cause of lost time: none (the first start, checkpoints, evaluations), a preemption, the end
// of the job's time limit, or the kind of a fault. A cause applies until the job completes a step
// that no attempt had completed before.
enum class LossCause : size_t { kNone, kPreempted, kPlanned, kTimeLimit, kFirstIncident };
constexpr size_t kLossCauses =
    static_cast<size_t>(LossCause::kFirstIncident) + kIncidentKindNames.size();
constexpr LossCause cause_of(IncidentKind kind) {
  return static_cast<LossCause>(static_cast<size_t>(LossCause::kFirstIncident) +
                                static_cast<size_t>(kind));
}
constexpr std::string_view loss_cause_name(LossCause cause) {
  if (cause == LossCause::kNone) return "none";
  if (cause == LossCause::kPreempted) return "preempted";
  if (cause == LossCause::kPlanned) return "planned";
  if (cause == LossCause::kTimeLimit) return "time limit";
  return kIncidentKindNames[static_cast<size_t>(cause) -
                            static_cast<size_t>(LossCause::kFirstIncident)];
}

// Time by class and cause. Productive time has no cause.
struct LossTable {
  std::array<std::array<Duration, kLossCauses>, kTimeClasses> time{};

  Duration& at(TimeClass what, LossCause cause) {
    return time[static_cast<size_t>(what)][static_cast<size_t>(cause)];
  }
  Duration at(TimeClass what, LossCause cause) const {
    return time[static_cast<size_t>(what)][static_cast<size_t>(cause)];
  }
  Duration productive() const { return at(TimeClass::kProductive, LossCause::kNone); }
  // Returns the sum of all classes, which is the wall time since the first start.
  Duration wall() const {
    Duration sum{};
    for (const auto& row : time)
      for (const Duration part : row) sum += part;
    return sum;
  }
  // Returns the part of the wall time in which the job had ranks.
  Duration running() const {
    Duration waiting{};
    for (const Duration part : time[static_cast<size_t>(TimeClass::kWaiting)]) waiting += part;
    return wall() - waiting;
  }
  // Returns the effective training time ratio (ETTR); 0 before the first start.
  double ratio() const {
    return wall() > Duration::zero() ? to_seconds(productive()) / to_seconds(wall()) : 0;
  }

  friend bool operator==(const LossTable&, const LossTable&) = default;
};

struct Account {
  // The state of the job with respect to time.
  enum class Mode { kQueued, kStarting, kRunning, kStopping, kWaiting, kEnded };
  // The activity of the job while RUNNING.
  enum class Activity { kSilent, kLoading, kStepping, kSaving, kEvaluating, kLeaving };

  Mode mode = Mode::kQueued;
  Activity activity = Activity::kLoading;
  LossCause cause = LossCause::kNone;
  LossTable settled;          // time whose class is final
  Duration pending{};         // work on steps that are not completed yet
  Duration queued{};          // before the first start
  bool has_reported = false;  // an attempt has reported a phase or a step
  bool was_silent = false;    // the current attempt was silent for kSilentForGood
  int64_t best_step = -1;     // highest step completed by any attempt
  int64_t step = -1;          // highest step completed by this attempt
  double stall_seconds = 0;   // checkpoint stalls of this attempt in `settled`
  // The number of steps in the newest complete checkpoint; below 1: no checkpoint is known.
  int64_t checkpoint_step = -1;
  int64_t checkpoint_unix_ns = 0;  // time of the first report of that checkpoint
  int64_t saves = -1;              // checkpoints saved by this attempt; -1: not reported
  int64_t unix_ns = 0;             // time at which the account was written

  friend bool operator==(const Account&, const Account&) = default;
};

}  // namespace muster::coordinator

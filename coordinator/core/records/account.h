// The account of a job's time: a value without behaviour, durable with the job.
// coordinator/core/accounting/ledger.h keeps it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/time.h"
#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

// The use of a moment since the first start. All but the first are losses.
enum class TimeClass {
  kProductive,  // steps that no attempt has completed before
  kStarting,    // from the order to start until every rank is up
  kLoading,     // until the first step begins: libraries, rendezvous, compilation, restore
  kSaving,      // training stood still for a checkpoint
  kEvaluating,
  kRecomputing,    // steps that were completed before, and what was done of one that never was
  kStandingStill,  // from the last progress to the verdict
  kStopping,       // until every rank is gone
  kWaiting,        // for the back-off, and for nodes
};
constexpr std::array<std::string_view, 9> kTimeClassNames = {
    "productive",  "starting",       "loading",  "checkpoint stall", "evaluating",
    "recomputing", "standing still", "stopping", "waiting"};
constexpr size_t kTimeClasses = kTimeClassNames.size();

// The cause of a loss: nothing (the first start, checkpoints, evaluations), a preemption, or a
// fault, until steps beyond the earlier ones are completed.
enum class LossCause : size_t { kNone, kPreempted, kFirstIncident };
constexpr size_t kLossCauses =
    static_cast<size_t>(LossCause::kFirstIncident) + kIncidentKindNames.size();
constexpr LossCause cause_of(IncidentKind kind) {
  return static_cast<LossCause>(static_cast<size_t>(LossCause::kFirstIncident) +
                                static_cast<size_t>(kind));
}
constexpr std::string_view loss_cause_name(LossCause cause) {
  if (cause == LossCause::kNone) return "none";
  if (cause == LossCause::kPreempted) return "preempted";
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
  // Since the first start: of everything.
  Duration wall() const {
    Duration sum{};
    for (const auto& row : time)
      for (const Duration part : row) sum += part;
    return sum;
  }
  // ETTR; 0 before the first start.
  double ratio() const {
    return wall() > Duration::zero() ? to_seconds(productive()) / to_seconds(wall()) : 0;
  }

  friend bool operator==(const LossTable&, const LossTable&) = default;
};

struct Account {
  // The state of the job, as far as time is concerned.
  enum class Mode { kQueued, kStarting, kRunning, kStopping, kWaiting, kEnded };
  // … and while RUNNING.
  enum class Activity { kSilent, kLoading, kStepping, kSaving, kEvaluating, kLeaving };

  Mode mode = Mode::kQueued;
  Activity activity = Activity::kLoading;
  LossCause cause = LossCause::kNone;
  LossTable settled;               // what nothing changes any more
  Duration pending{};              // work on steps that are not completed yet
  Duration queued{};               // before the first start
  bool speaks = false;             // an attempt has reported a phase or a step
  bool mute = false;               // this one has been silent for good
  int64_t best_step = -1;          // completed by any attempt
  int64_t step = -1;               // the same, by this one
  double stall_seconds = 0;        // for checkpoints, of this attempt, that are in `settled`
  int64_t checkpoint_step = -1;    // steps in the newest whole checkpoint; below 1: none is known
  int64_t checkpoint_unix_ns = 0;  // when it was first reported
  int64_t saves = -1;              // of this attempt's checkpoints; -1: rank 0 has reported none
  int64_t unix_ns = 0;             // when all this was true

  friend bool operator==(const Account&, const Account&) = default;
};

}  // namespace muster::coordinator

// An incident of a job: the fault, the suspects and the action taken. `muster incident show` prints
// the record. Values without behaviour; durable.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/ids.h"
#include "common/job/rank_evidence.h"
#include "common/stacks/stack_tree.h"
#include "coordinator/core/records/caller.h"

namespace muster::coordinator {

// An incident's number, assigned by the coordinator: 1, 2, 3, … Never reused within one state
// store.
using IncidentId = StrongId<struct IncidentIdTag, uint64_t>;
// Identifies one dump of an attempt's stacks within this coordinator's lifetime.
using DumpId = StrongId<struct DumpIdTag, uint64_t>;

enum class IncidentKind {
  kRankDied,     // a signal, or an exit code that no other kind explains
  kWorkerLost,   // a node is dead or cannot be reached
  kHang,         // ranks are alive and make no progress
  kSlowRank,     // a rank slows the other ranks down, and continues
  kNotFinite,    // NaN or Inf
  kOutOfMemory,  // the kernel killed a rank for memory, or an allocation failed
  kDiskFull,
  kNotStarted,  // ranks were not up in time, or their worker could not start a process
  kGpuFault,    // a rank's GPU was lost, or reported an error
  // steps take longer than the job's plan predicts, and training continues
  kSlowerThanPlan,
  // steps take longer than earlier steps of the same attempt, and training continues
  kSlowerThanBefore,
};
constexpr std::array<std::string_view, 11> kIncidentKindNames = {
    "rank died",         "worker lost", "hang",        "slow rank", "not finite",
    "out of memory",     "disk full",   "not started", "gpu fault", "slower than plan",
    "slower than before"};

// One possible culprit of an incident.
struct Suspect {
  Rank rank{-1};  // -1: no single rank
  WorkerName worker;
  // The axis along which the other ranks wait for the suspect: "fsdp+context". Empty: no collective
  // is involved.
  std::string axis;
  std::string collective;  // "layer 3 mlp all-gather"
  // The source position: "train.cc:210 in muster::trainer::run()". Empty until symbols are known.
  std::string source;
  // A clause whose subject is the suspect: "never entered all-reduce 41, which 7 others wait in".
  std::string why;
  double confidence = 0;  // 0 to 1; the sum over all suspects is at most 1

  friend bool operator==(const Suspect&, const Suspect&) = default;
};

// The newest incident of a job, for display with the job.
struct IncidentNote {
  IncidentId id{0};  // 0: no incident yet
  std::string sentence;

  friend bool operator==(const IncidentNote&, const IncidentNote&) = default;
};

struct IncidentMoment {
  int64_t unix_ns = 0;
  std::string text;

  friend bool operator==(const IncidentMoment&, const IncidentMoment&) = default;
};

// The milestones of a recovery, from a fault until the job has completed as many steps as before.
enum class RecoveryMoment {
  kProgress,  // the last progress before the fault
  kDetected,  // the fault was suspected or reported
  // The incident contains evidence: stacks, or the last page and output of a dead rank.
  kEvidence,
  kDecided,    // the decision whether the job is restarted
  kStopped,    // the last rank has ended
  kStarted,    // the order to start the next attempt is sent
  kUp,         // every rank is up
  kLoaded,     // every rank has begun to train
  kFirstStep,  // the next attempt has completed a step
  kCaughtUp,   // a step is completed that no attempt had completed
};
constexpr std::array<std::string_view, 10> kRecoveryMomentNames = {
    "progress", "detected", "evidence", "decided",    "stopped",
    "started",  "up",       "loaded",   "first step", "caught up"};
constexpr size_t kRecoveryMoments = kRecoveryMomentNames.size();

// The recovery of a job from a fault. coordinator/core/incident/recovery_times.h fills it in.
struct Recovery {
  // The wall-clock time of each milestone, never decreasing; 0: not reached, or not known.
  std::array<int64_t, kRecoveryMoments> unix_ns{};
  bool over = false;           // the recovery is complete and does not change any more
  int32_t attempts = 0;        // attempts started for this recovery
  int64_t best_step = -1;      // steps completed when the fault happened; -1: not known
  int64_t restored_step = -1;  // step from which the next attempt resumed; -1: not known
  // The incident of another fault that interrupted this recovery.
  IncidentId interrupted_by{0};

  int64_t at(RecoveryMoment moment) const { return unix_ns[static_cast<size_t>(moment)]; }
  // Returns the number of steps to repeat; -1: not known.
  int64_t steps_lost() const {
    if (best_step < 0 || restored_step < 0) return -1;
    return best_step > restored_step ? best_step - restored_step : 0;
  }
  friend bool operator==(const Recovery&, const Recovery&) = default;
};

constexpr size_t kSuspectsMax = 5;
constexpr size_t kIncidentRanksMax = 64;  // ranks whose evidence is stored
constexpr size_t kIncidentMomentsMax = 64;
constexpr size_t kIncidentsKeptMax = 1'000;  // over all jobs; the oldest are dropped first

struct Incident {
  IncidentId id;
  JobId job;
  Attempt attempt;
  std::string job_name;
  JobOwner owner{};  // the job's
  IncidentKind kind = IncidentKind::kHang;
  bool open = true;      // the incident is not over, for example while a slow rank stays slow
  std::string sentence;  // names rank, node, axis, collective and source line
  // The suspects, likeliest first.
  std::vector<Suspect> suspects;
  // Evidence of the suspects and of one rank per stack class.
  std::vector<RankEvidence> ranks;
  // The stacks of the newest sample, with their symbols once these are known.
  StackTree stacks;
  std::vector<std::string> kernel_messages;
  // The coordinator's action: "restart 1 of 3", "none: training continues".
  std::string action;
  // The family of the error in the rank's output, its meaning, and the verdict about a restart:
  // "GPU memory error: … Verdict: restart elsewhere". Empty: the error is not known.
  std::string diagnosis{};
  // Last progress, suspicion, dump, verdict, action: oldest first.
  std::vector<IncidentMoment> moments;
  // The job's recovery. Set if the incident has ended an attempt.
  std::optional<Recovery> recovery;

  friend bool operator==(const Incident&, const Incident&) = default;
};

// Returns whether the incident may still change, so that a restarted coordinator needs it.
inline bool is_unfinished(const Incident& incident) {
  return incident.open || (incident.recovery && !incident.recovery->over);
}

}  // namespace muster::coordinator

// An incident of a job: the fault, the suspects and the action taken. The record that `muster
// incident show` prints. Values without behaviour; durable.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/rank_evidence.h"
#include "common/stack_tree.h"

namespace muster::coordinator {

// An incident's number, given by the coordinator: 1, 2, 3, … never reused within one state store.
using IncidentId = StrongId<struct IncidentIdTag, uint64_t>;
// Names one dump of an attempt's stacks among this coordinator's.
using DumpId = StrongId<struct DumpIdTag, uint64_t>;

enum class IncidentKind {
  kRankDied,     // a signal, or an exit code that nothing below explains
  kWorkerLost,   // a node is dead or cannot be reached
  kHang,         // alive and not progressing
  kSlowRank,     // holds the others up, and goes on
  kNotFinite,    // NaN or Inf
  kOutOfMemory,  // killed by the kernel for memory, or an allocation that failed
  kDiskFull,
  kNotStarted,  // ranks were not up in time
  kGpuFault,    // a rank's GPU was lost, or had an error of its own
};
constexpr std::array<std::string_view, 9> kIncidentKindNames = {
    "rank died",     "worker lost", "hang",        "slow rank", "not finite",
    "out of memory", "disk full",   "not started", "gpu fault"};

// One answer to "who did it".
struct Suspect {
  Rank rank{-1};  // -1: no single rank
  WorkerName worker;
  std::string
      axis;  // along which the others wait for it: "fsdp+context"; empty: no collective is involved
  std::string collective;  // "layer 3 mlp all-gather"
  std::string
      source;  // where it stands: "train.cc:210 in muster::trainer::run()"; empty until symbols are known
  std::string why;        // one clause: "never entered all-reduce 41, which 7 others wait in"
  double confidence = 0;  // 0 to 1; of all suspects together at most 1

  friend bool operator==(const Suspect&, const Suspect&) = default;
};

// The newest incident of a job, for people who look at the job.
struct IncidentNote {
  IncidentId id{0};  // 0: it had none
  std::string sentence;

  friend bool operator==(const IncidentNote&, const IncidentNote&) = default;
};

struct IncidentMoment {
  int64_t unix_ns = 0;
  std::string text;

  friend bool operator==(const IncidentMoment&, const IncidentMoment&) = default;
};

// The moments of a job from a fault to its former progress.
enum class RecoveryMoment {
  kProgress,   // the last before the fault
  kDetected,   // suspected, or reported
  kEvidence,   // there are stacks, or what a dead rank has left: in the incident
  kDecided,    // whether it is tried again
  kStopped,    // the last rank is gone
  kStarted,    // the order to start the next attempt is sent
  kUp,         // every rank is
  kLoaded,     // every rank has begun to train
  kFirstStep,  // completed by the next attempt
  kCaughtUp,   // a step that had not been completed before
};
constexpr std::array<std::string_view, 10> kRecoveryMomentNames = {
    "progress", "detected", "evidence", "decided",    "stopped",
    "started",  "up",       "loaded",   "first step", "caught up"};
constexpr size_t kRecoveryMoments = kRecoveryMomentNames.size();

// By attempts of a job, after a fault. coordinator/core/incident/recovery_times.h fills it in.
struct Recovery {
  std::array<int64_t, kRecoveryMoments> unix_ns{};  // never falling; 0: not yet, or not known
  bool over = false;                                // nothing is added any more
  int32_t attempts = 0;                             // started for it
  int64_t best_step = -1;        // completed when the fault happened; -1: none is known
  int64_t restored_step = -1;    // that the next attempt went on from; -1: not known
  IncidentId interrupted_by{0};  // another fault came first, which has a record of its own

  int64_t at(RecoveryMoment moment) const { return unix_ns[static_cast<size_t>(moment)]; }
  // That are made again; -1: not known.
  int64_t steps_lost() const {
    if (best_step < 0 || restored_step < 0) return -1;
    return best_step > restored_step ? best_step - restored_step : 0;
  }
  friend bool operator==(const Recovery&, const Recovery&) = default;
};

constexpr size_t kSuspectsMax = 5;
constexpr size_t kIncidentRanksMax = 64;  // whose evidence is kept
constexpr size_t kIncidentMomentsMax = 64;
constexpr size_t kIncidentsKeptMax = 1'000;  // of all jobs, oldest dropped first

struct Incident {
  IncidentId id;
  JobId job;
  Attempt attempt;
  std::string job_name;
  IncidentKind kind = IncidentKind::kHang;
  bool open = true;                 // a slow rank goes on being slow
  std::string sentence;             // names rank, node, axis, collective and source line
  std::vector<Suspect> suspects;    // the likeliest first; the others are the runners-up
  std::vector<RankEvidence> ranks;  // of suspects and of one rank per stack class
  StackTree stacks;                 // of the newest sample, symbols included once they are known
  std::vector<std::string> kernel_messages;
  std::string action;  // what the coordinator did: "restart 1 of 3", "none: training goes on"
  std::vector<IncidentMoment>
      moments;  // last progress, suspicion, dump, verdict, action: oldest first
  std::optional<Recovery> recovery;  // of one that has ended an attempt

  friend bool operator==(const Incident&, const Incident&) = default;
};

// More will be learned of it: a restarted coordinator needs it.
inline bool is_unfinished(const Incident& incident) {
  return incident.open || (incident.recovery && !incident.recovery->over);
}

}  // namespace muster::coordinator

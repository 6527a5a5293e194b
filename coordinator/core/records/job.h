// The coordinator's record of a job: values without behaviour.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/gpu.h"
#include "common/job/ids.h"
#include "common/job/job_spec.h"
#include "common/process/exit_code.h"
#include "common/progress/checkpoint_times.h"
#include "common/progress/progress_page.h"
#include "common/time/time.h"
#include "coordinator/core/records/account.h"
#include "coordinator/core/records/cause.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/revision.h"
#include "coordinator/core/records/slow_node.h"

namespace muster::coordinator {

// A job's life:
//
//   QUEUED ──placed──▶ STARTING ──all ranks up──▶ RUNNING ──all exit 0──▶ SUCCEEDED
//     ▲                   │ fault                   │ fault
//     │                   ▼                         │
//     └──all reaped── RESTARTING ◀──────────────────┘
//                         │
//                         └──all reaped, and no retry left or allowed──▶ FAILED
//
//   any state that is not terminal ──cancelled, and all ranks reaped──▶ CANCELLED
//
// A job that may hang goes through suspicion and dumps while its ranks run:
//
//   RUNNING ──no progress for too long, or a worker is unreachable──▶ SUSPECT
//      ▲                                                                 │
//      │◀──────────────────────── it makes progress ─────────────────────┤
//      │                                                                 │ no page shows progress
//      │                                                                 ▼
//      └──────────────────────── it progresses, or is slow ────────── DUMPING
//                                                                        │
//   RESTARTING ◀──────────────────── it is stuck ────────────────────────┘
enum class JobState {
  kQueued,
  kStarting,
  kRunning,
  kSuspect,
  kDumping,
  kRestarting,
  kSucceeded,
  kFailed,
  kCancelled
};

constexpr std::array<std::string_view, 9> kJobStateNames = {"QUEUED",    "STARTING", "RUNNING",
                                                            "SUSPECT",   "DUMPING",  "RESTARTING",
                                                            "SUCCEEDED", "FAILED",   "CANCELLED"};
constexpr std::string_view job_state_name(JobState state) {
  return kJobStateNames[static_cast<size_t>(state)];
}
constexpr bool is_terminal(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kCancelled;
}

// Returns whether every rank was up once and nothing has ended the attempt.
constexpr bool is_running(JobState state) {
  return state == JobState::kRunning || state == JobState::kSuspect || state == JobState::kDumping;
}

// Transitions of a job that has not ended, for its account and its recovery.
enum class JobTransition { kStarted, kUp, kCancelled, kGone };

struct RankPlacement {
  Rank rank;
  WorkerName worker;
  int32_t local_rank = 0;
  // The incarnation of the worker when it received the rank. If the worker registers with another
  // incarnation, the rank is gone.
  Incarnation incarnation{};

  friend bool operator==(const RankPlacement&, const RankPlacement&) = default;
};

// The end of one rank of the current attempt, as its worker reported it. Durable, because the
// worker deletes a report once it is acknowledged.
struct RankExit {
  Rank rank;
  int32_t exit_code = 0;  // -1 when killed by a signal
  int32_t signal = 0;
  int64_t last_step = -1;
  std::string detail;
  ExitCause cause = ExitCause::kUnknown;
  bool of_program = false;  // a user program: its exit code has no meaning here
  // The rank, or its worker, was ordered to stop.
  bool stop_ordered = false;
  // The disk of the worker was full while the rank ran, so output may be missing.
  bool output_incomplete = false;
  // The loss of a link of its node that may explain why the rank has lost a peer, as a clause;
  // empty: there is none. It changes neither the error nor its family.
  std::string lost_link{};
  bool link_is_down = false;  // this link is still down

  friend bool operator==(const RankExit&, const RankExit&) = default;
};

// The nodes of Fault::nodes_without_link: more than those of a large switch.
constexpr size_t kNodesWithoutLinkMax = 512;

// The reason why an attempt ended without success.
struct Fault {
  Rank rank{-1};  // -1: no single rank is to blame
  WorkerName worker;
  int32_t signal = 0;
  int32_t exit_code = 0;
  int64_t last_step = -1;
  std::string message;
  int64_t unix_ns = 0;
  bool of_program = false;  // see RankExit::of_program
  IncidentKind kind = IncidentKind::kRankDied;
  // The progress of the whole job up to this fault. checkpoint_step: the steps in the newest
  // complete checkpoint on shared storage. resumed_from: the steps in the furthest checkpoint, on
  // any storage, from which an attempt has resumed. Both are below 1 if no such checkpoint is
  // known. job_step: the highest step that any rank has completed.
  int64_t checkpoint_step = -1;
  int64_t resumed_from = -1;
  int64_t job_step = -1;
  // The productive time of the whole job up to this fault. For a program that reports no steps, all
  // its running time.
  Duration productive{};
  bool is_planned = false;     // the node is drained for planned maintenance, or slow
  bool node_unfit = false;     // result of is_of_unfit_node()
  bool has_elsewhere = false;  // other or fewer nodes could have run the job
  // The type of the exception that ended the rank of a program, and its place in the program:
  // "ValueError at job/train.py:31 step". Empty for an error that the network, storage, a device or
  // another rank may have caused.
  std::string error;
  // The family of the error of a program, by its name in common/text/error_family.h; empty: it is
  // not known. The place is that of `error`, also for errors that leave `error` empty.
  std::string family;
  std::string place;
  // If `worker` and another node cannot reach each other: the other node. Neither is to blame.
  WorkerName peer{};
  int32_t revision = 1;        // Job::revision
  bool for_update = false;     // the attempt was ended to roll in an update
  bool is_unreported = false;  // the rank is gone, and its worker did not report how it ended
  // The attempt was ended because the job's time limit is over. Otherwise as a preemption.
  bool for_time_limit = false;
  // If network links of several nodes were down: these nodes, at most kNodesWithoutLinkMax. None of
  // them is to blame, because a switch may have failed.
  std::vector<WorkerName> nodes_without_link{};

  friend bool operator==(const Fault&, const Fault&) = default;
};

// The restarts after faults of one cause since the job last made durable progress, and the job's
// progress at the newest of these restarts.
struct RestartsUsed {
  int32_t count = 0;
  // The larger of the fault's checkpoint_step and resumed_from.
  int64_t checkpoint_step = -1;
  int64_t job_step = -1;
  Duration productive{};

  friend bool operator==(const RestartsUsed&, const RestartsUsed&) = default;
};

// The state of one rank of the current attempt. Volatile.
struct RankState {
  enum class Life { kAssigned, kUp, kExited };
  Life life = Life::kAssigned;
  int32_t pid = 0;
  Phase phase = Phase::kInit;
  int64_t step = -1;
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double tflops_per_device = 0;
  double device_peak_tflops = 0;
  int64_t checkpoint_step = -1;
  CheckpointTimes checkpoints;
  Instant last_progress{};
  char process_state = '?';  // state letter in /proc/PID/stat

  friend bool operator==(const RankState&, const RankState&) = default;
};

// The coordinator that led when the attempts from `first` on ended, until that of the next record.
// Logs of ended attempts are on its disk only.
struct LogLeader {
  Attempt first{0};
  std::string coordinator;  // its address

  friend bool operator==(const LogLeader&, const LogLeader&) = default;
};

// The maximum number of such records: logs of older attempts were probably removed.
constexpr size_t kLogLeadersKeptMax = 32;

struct Job {
  JobId id;
  JobSpec spec;
  JobState state = JobState::kQueued;
  std::string reason;
  Attempt attempt{0};
  bool cancel_requested = false;
  std::vector<RankPlacement> placement;  // the current attempt's placement, by rank
  std::vector<Fault> faults;             // oldest first, at most kFaultsKeptMax
  int64_t submitted_unix_ns = 0;
  // The start of the first attempt, and of the current one; 0: none was started.
  int64_t first_started_unix_ns = 0;
  int64_t started_unix_ns = 0;
  // The time at which every rank of the current attempt was up; 0: this was not the case yet.
  int64_t up_unix_ns = 0;
  int64_t finished_unix_ns = 0;
  int32_t exit_code = 0;
  // The job has failed by its own repeated faults: a further start would make no progress.
  bool is_futile = false;
  // The address of the current attempt's rendezvous store, which the worker with rank 0 serves.
  std::string rendezvous_address;
  // The port on the node of rank 0 that the current attempt of a program uses; 0: none.
  int32_t program_port = 0;
  std::vector<RankExit> exits;  // the current attempt's exits, in the order of their reports
  int32_t restarts = 0;         // launches after faults; preemptions do not count
  std::map<Cause, RestartsUsed> restarts_used;
  IncidentNote incident;  // the job's newest incident
  // The incident from which the job is recovering; 0: the job is not recovering.
  IncidentId recovering{0};
  // The account at the time when the job was last stored. Core::account_of() returns the current
  // account.
  Account account;
  // The grace in the order to stop the current attempt's ranks.
  Duration stop_grace{};
  // The nodes of the newest attempt that has ended, in the order of their ranks.
  std::vector<WorkerName> previous_nodes;
  // The nodes of the newest ended attempt that completed a step.
  std::vector<WorkerName> trained_on;
  // The end of the back-off while QUEUED; 0: the job does not back off.
  int64_t not_before_unix_ns = 0;
  int32_t resizes = 0;  // attempts that were ended so that the job could grow
  // An inconclusive hang has ended an attempt. The job may pause regularly, so that later
  // inconclusive hangs are sampled for longer.
  bool ended_without_proof = false;
  // The revision of `spec`, the highest number of a revision so far, and the newest updates that
  // were accepted, oldest first: those that were rolled in, and those that were not.
  int32_t revision = 1;
  int32_t newest_revision = 1;
  std::vector<RevisionNote> revisions;
  std::optional<JobUpdate> update;  // the next attempt takes it
  std::optional<Trial> trial;       // the trial of `revision`
  // The next attempt starts before other waiting jobs, because the job has given up its nodes only
  // to change its revision, or to leave a slow node.
  bool keeps_nodes = false;
  // The newest attempt started before jobs ahead of this one, because its time limit ends in time.
  bool is_backfilled = false;

  // The dependencies of `spec` that are not met yet. Not empty: the job is QUEUED and has had no
  // attempt.
  std::vector<JobDependency> waits_for;

  // The nodes that slowed this job down, oldest first, at most kSlowNodesKeptMax.
  std::vector<SlowNode> slow_nodes;

  // Oldest first, at most kLogLeadersKeptMax; empty if there is one coordinator only.
  std::vector<LogLeader> log_leaders;

  // The following fields are volatile and not stored.
  std::vector<RankState> ranks;  // by rank
  // Workers reserved for this job; see placement/placement_pass.h.
  std::vector<WorkerName> held;

  friend bool operator==(const Job&, const Job&) = default;
};

// Returns whether the current attempt has ranks on `worker`.
inline bool has_ranks_on(const Job& job, const WorkerName& worker) {
  return std::any_of(job.placement.begin(), job.placement.end(),
                     [&](const RankPlacement& rank) { return rank.worker == worker; });
}

// Returns the record of the confirmed slow node `worker`, whose effect is not measured yet; null if
// there is none.
inline const SlowNode* unmeasured_slow_node(const Job& job, const WorkerName& worker) {
  for (const SlowNode& node : job.slow_nodes)
    if (node.worker == worker && !node.is_measured) return &node;
  return nullptr;
}

// Returns the number of nodes of the current attempt; 0 without one.
inline int32_t nodes_now(const Job& job) {
  return static_cast<int32_t>(std::ssize(job.placement)) / job.spec.ranks_per_node;
}

// Returns whether a job in this state has ranks that occupy slots.
constexpr bool is_live(JobState state) {
  return state == JobState::kStarting || is_running(state) || state == JobState::kRestarting;
}

// Returns whether `rank` runs now, so that its reported values are current.
inline bool is_up(const Job& job, const RankState& rank) {
  return is_live(job.state) && rank.life == RankState::Life::kUp;
}

// Returns the sum of the ranks' throughputs in tokens per second, each over the rank's last step.
// Counts only ranks that are up.
inline double tokens_per_second(const Job& job) {
  double sum = 0;
  for (const RankState& rank : job.ranks) {
    if (is_up(job, rank)) sum += rank.tokens_per_second;
  }
  return sum;
}

// Returns the part of a job that is stored.
inline Job durable(Job job) {
  job.ranks.clear();
  job.held.clear();
  return job;
}

// The number of retained faults: enough to recognise a pattern, and bounded for a job that fails
// for weeks.
constexpr size_t kFaultsKeptMax = 32;

}  // namespace muster::coordinator

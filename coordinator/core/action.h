// The output actions of the coordinator core. For each step, the shell first executes every Persist
// and Forget action in one storage transaction, then the others in the order given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <absl/status/status.h>

#include "common/job/ids.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/attempt_record.h"
#include "coordinator/core/records/deep_check.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Stores the job's durable record, replacing the existing one. The record is durable(job) at the
// time of writing. A batch of steps writes it once, even if thousands of ranks end in that batch.
struct PersistJob {
  JobId job;
  JobState state{};    // the state in this step, for the log
  std::string reason;  // the reason in this step, for the log
};

// Stores one exit of a job's current attempt, the only part of the job that changes with each rank.
// `position`: the exit's index in Job::exits.
struct PersistExit {
  JobId job;
  Attempt attempt;
  size_t position = 0;
  RankExit exit;
};

// Stores that `request_id` created `job`, so that a repeated submission returns the same job.
struct PersistRequestId {
  std::string request_id;
  JobId job;
};

// Stores the highest job number assigned so far. Numbers are never reused, even after their jobs
// are forgotten.
struct PersistLastJobId {
  JobId job;
};

// Deletes the records of a job that ended long ago, with its request id and its logs.
struct ForgetJob {
  JobId job;
};

// Confirms the worker's registration.
struct SendRegistered {
  Duration heartbeat_interval{};
  StoreId store;
  // Jobs that were launched and have not ended. The node can delete data that it retains for any
  // other job.
  std::vector<JobId> unfinished;
  Duration lease{};          // the silence after which the worker is lost
  Duration busy_interval{};  // the heartbeat interval of a worker with ranks
  Duration spread{};         // the time over which workers spread their reconnections
  // The coordinator is one of several with a common store, and answers heartbeats.
  bool is_replicated = false;
  Epoch left_at{};  // DurableState::left_at
};

// Changes the intervals of a registered worker, because the fleet's size has changed.
struct SendPace {
  Duration heartbeat_interval{};
  Duration busy_interval{};
  Duration lease{};
  Duration spread{};
};

// Orders the worker to start ranks.
struct SendStartRanks {
  JobId job;
  Attempt attempt;
  // Shared by all orders of the attempt, because a job may have ten thousand workers. Not null.
  std::shared_ptr<const JobSpec> spec;
  // Only the ranks of the receiving worker.
  std::vector<RankPlacement> ranks;
  std::string rendezvous_address;
  int32_t program_port = 0;
  // The number of steps in the newest complete checkpoint that is known; below 1: none.
  int64_t checkpoint_step = -1;
  // The time within which the trainer's ranks must find each other; zero: the trainer's default.
  Duration rendezvous_time{};
};

// Orders the worker to stop ranks.
struct SendStopRanks {
  JobId job;
  Attempt attempt;
  Duration grace{};  // zero: kill immediately
  std::string reason;
  // The ranks of the receiving worker that have not ended.
  std::vector<Rank> ranks;
  // Whether a save that makes progress delays SIGKILL (common/progress/save_progress.h).
  bool waits_for_save = false;
};

// Requests a checkpoint from the rank.
struct SendSaveCheckpoint {
  JobId job;
  Attempt attempt;
  Rank rank;
};

// Requests `samples` samples of stacks and evidence of the worker's ranks. The first sample is
// taken immediately.
struct SendDumpStacks {
  JobId job;
  Attempt attempt;
  DumpId dump;
  int32_t samples = 1;
  Duration apart{};  // interval between samples
  // The time limit for each sample. Stacks that could not be read in time are reported as such.
  Duration deadline{};
  std::vector<Rank> ranks;
};

// Requests the symbols of addresses in a module, from a worker whose ranks have the module mapped.
struct SendSymbolize {
  DumpId dump;
  JobId job;
  Attempt attempt;
  StackModule module;
  std::vector<uint64_t> addresses;
};

// Requests a check whether the node can run ranks. The worker answers with NodeChecked.
struct SendCheckNode {
  uint64_t check = 0;
  std::optional<DeepCheckOrder> deep{};  // nullopt: the short check
};

// Reports that the job has ended, so that the worker can delete its data.
struct SendJobEnded {
  JobId job;
};

// Acknowledges a report, so that the worker does not repeat it.
struct SendReportAck {
  uint64_t report_id = 0;
};

using WorkerPayload =
    std::variant<SendRegistered, SendPace, SendStartRanks, SendStopRanks, SendSaveCheckpoint,
                 SendDumpStacks, SendSymbolize, SendCheckNode, SendJobEnded, SendReportAck>;

// Sends a message to a worker. A message to a worker that is not connected is dropped; when the
// worker registers again, it receives all orders that still apply.
struct SendToWorker {
  WorkerName worker;
  Incarnation incarnation;
  WorkerPayload payload;
};

// Ends the worker's stream with `status`.
struct RefuseWorker {
  WorkerName worker;
  Incarnation incarnation;
  absl::Status status;
};

// Ends the stream on which this step's registration arrived. A live worker with the same name and
// incarnation uses another stream, which stays open.
struct RefuseRegistration {
  WorkerName worker;
  absl::Status status;
};

// Answers a waiting caller with a non-OK status, or with the current state of the job.
struct Reply {
  RequestToken token;
  absl::Status status;
  JobId job;
};

// Stores the incident's record, replacing the existing one.
struct PersistIncident {
  Incident incident;
};

// Deletes the record of an old incident.
struct ForgetIncident {
  IncidentId incident;
};

// Stores the suspicion record of the node, replacing the existing one.
struct PersistNode {
  NodeRecord node;
};

// Stores the results of a node's deep checks, replacing the existing ones. Deletes them if there is
// none.
struct PersistDeepChecks {
  WorkerName worker;
  std::vector<DeepCheckRecord> checks;
};

// Stores an attempt that has ended.
struct PersistAttempt {
  AttemptRecord attempt;
};

// Stores the usage of a user or a team, replacing the existing record; deletes it if it is 0.
struct PersistUsage {
  UsageRecord usage;
};

// Stores the text of the queue policy, replacing the existing one.
struct PersistQueuePolicy {
  std::string text;
};

// Deletes the suspicion record of a node that is sound again.
struct ForgetNode {
  WorkerName worker;
};

// A decision about a node, for the log and the metrics.
struct NodeDecision {
  enum class What { kExcluded, kAdmitted, kCheckPassed, kCheckFailed };
  WorkerName worker;
  What what = What::kExcluded;
  Suspicion suspicion = Suspicion::kPerson;  // the reason of an exclusion (kExcluded)
  std::string text;                          // the decision in one sentence
};

// The contents of `muster stacks`.
struct JobStackDump {
  JobId job;
  Attempt attempt;
  StackTree stacks;
  std::vector<RankEvidence> ranks;  // by rank
  std::vector<WorkerName> silent;   // workers that did not answer in time
};

// Answers a StacksRequested.
struct ReplyStacks {
  RequestToken token;
  absl::Status status;
  JobStackDump dump;
};

// Notifies the job's watchers and updates metrics, because the job's state, reason or placement
// changed.
struct JobChanged {
  JobId job;
};

using Action =
    std::variant<PersistJob, PersistExit, PersistRequestId, PersistLastJobId, ForgetJob,
                 PersistIncident, ForgetIncident, PersistNode, ForgetNode, PersistDeepChecks,
                 PersistAttempt, PersistUsage, PersistQueuePolicy, NodeDecision, SendToWorker,
                 RefuseWorker, RefuseRegistration, Reply, ReplyStacks, JobChanged>;
using ActionList = std::vector<Action>;

// Appends `some`: a list of actions, or a list of values of one kind of action.
template <class Some>
void append(ActionList& actions, Some some) {
  actions.insert(actions.end(), std::make_move_iterator(some.begin()),
                 std::make_move_iterator(some.end()));
}

}  // namespace muster::coordinator

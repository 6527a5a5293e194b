// The actions of the coordinator core. The shell carries the actions of one step out in this
// order: every Persist and Forget in one storage transaction, and only then the rest, in the order
// given.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <absl/status/status.h>

#include "common/ids.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Stores the job's durable record, replacing what is there: what durable() leaves of the job as the
// core has it by then. A batch of steps writes it once, however many of thousands of ranks have
// ended in it.
struct PersistJob {
  JobId job;
  JobState state{};    // of this step …
  std::string reason;  // … for the log
};

// Remembers that `request_id` made `job`, so that a repeated submission returns it.
struct PersistRequestId {
  std::string request_id;
  JobId job;
};

// Remembers the newest number that a job was given: it is given once, also when the job is
// forgotten by then.
struct PersistLastJobId {
  JobId job;
};

// Drops the records of a job that ended long ago, its request id and its logs.
struct ForgetJob {
  JobId job;
};

struct SendRegistered {
  Duration heartbeat_interval{};
  StoreId store;
  std::vector<JobId>
      unfinished;  // launched: what nodes keep beyond attempts is of no use to any other
};

struct SendStartRanks {
  JobId job;
  Attempt attempt;
  JobSpec spec;
  std::vector<RankPlacement> ranks;  // of the receiving worker alone
  std::string rendezvous_address;
  int32_t program_port = 0;
  int64_t checkpoint_step = -1;  // steps in the newest whole one that is known; below 1: none
};

struct SendStopRanks {
  JobId job;
  Attempt attempt;
  Duration grace{};  // zero kills at once
  std::string reason;
  std::vector<Rank> ranks;  // of the receiving worker, whose ends are waited for
};

// Asks the rank for a checkpoint.
struct SendSaveCheckpoint {
  JobId job;
  Attempt attempt;
  Rank rank;
};

// Asks for stacks and evidence of ranks of the receiving worker: `samples` of them, the first one
// at once.
struct SendDumpStacks {
  JobId job;
  Attempt attempt;
  DumpId dump;
  int32_t samples = 1;
  Duration apart{};     // from one sample to the next
  Duration deadline{};  // for each: what is not read by then is reported as such
  std::vector<Rank> ranks;
};

// Asks what places in a module are called, of a worker whose ranks have it mapped.
struct SendSymbolize {
  DumpId dump;
  JobId job;
  Attempt attempt;
  StackModule module;
  std::vector<uint64_t> addresses;
};

// Asks whether the node is good for ranks; answered by NodeChecked.
struct SendCheckNode {
  uint64_t check = 0;
};

struct SendJobEnded {
  JobId job;
};

struct SendReportAck {
  uint64_t report_id = 0;
};

using WorkerPayload =
    std::variant<SendRegistered, SendStartRanks, SendStopRanks, SendSaveCheckpoint, SendDumpStacks,
                 SendSymbolize, SendCheckNode, SendJobEnded, SendReportAck>;

// Best effort: a worker that is not connected gets nothing, and learns what matters when it
// registers again.
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

// Ends the stream whose registration is this step's event. A live worker of that very name and
// incarnation has another stream, which is not concerned.
struct RefuseRegistration {
  WorkerName worker;
  absl::Status status;
};

// Answers a waiting caller: a status that is not OK, or the job as it is now.
struct Reply {
  RequestToken token;
  absl::Status status;
  JobId job;
};

// Stores the incident's record, replacing what is there.
struct PersistIncident {
  Incident incident;
};

// Drops the record of an incident of long ago.
struct ForgetIncident {
  IncidentId incident;
};

// Stores what is known against the node, replacing what is there.
struct PersistNode {
  NodeRecord node;
};

// Nothing is known against the node any more.
struct ForgetNode {
  WorkerName worker;
};

// A decision about a node, for the log and the metrics.
struct NodeTold {
  enum class What { kExcluded, kAdmitted, kCheckPassed, kCheckFailed };
  WorkerName worker;
  What what = What::kExcluded;
  Suspicion suspicion = Suspicion::kPerson;  // kExcluded
  std::string text;                          // a sentence
};

// The contents of `muster stacks`.
struct StackDump {
  JobId job;
  Attempt attempt;
  StackTree stacks;
  std::vector<RankEvidence> ranks;  // in their order
  std::vector<WorkerName> silent;   // workers that did not answer in time
};

// Answers a StacksRequested.
struct ReplyStacks {
  RequestToken token;
  absl::Status status;
  StackDump dump;
};

// The job's state, reason or placement changed: watchers want it, and metrics follow it.
struct JobChanged {
  JobId job;
};

using Action =
    std::variant<PersistJob, PersistRequestId, PersistLastJobId, ForgetJob, PersistIncident,
                 ForgetIncident, PersistNode, ForgetNode, NodeTold, SendToWorker, RefuseWorker,
                 RefuseRegistration, Reply, ReplyStacks, JobChanged>;
using ActionList = std::vector<Action>;

}  // namespace muster::coordinator

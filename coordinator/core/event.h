// The input events of the coordinator core. The shell converts RPCs, timers and lost streams into
// these values; nothing here depends on gRPC. Every event about a launch carries (job, attempt),
// and every event from a worker carries (worker, incarnation), so that the core recognises and
// refuses stale events.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/job/gpu.h"
#include "common/job/ids.h"
#include "common/job/node_labels.h"
#include "common/job/rank_evidence.h"
#include "common/job/stalled_link.h"
#include "common/job/thread_samples.h"
#include "common/process/port_range.h"
#include "common/progress/checkpoint_times.h"
#include "common/progress/progress_page.h"
#include "common/progress/step_times.h"
#include "common/time/time.h"
#include "coordinator/core/records/caller.h"
#include "coordinator/core/records/deep_check.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/node_place.h"
#include "coordinator/core/records/node_record.h"
#include "coordinator/core/records/queue_policy.h"

namespace muster::coordinator {

// Names the caller that waits for a Reply action; unique among waiting callers.
using RequestToken = StrongId<struct RequestTokenTag, uint64_t>;

struct JobSubmitted {
  RequestToken token;
  std::string request_id;  // the client's dedupe key
  JobSpec spec;
  int64_t unix_ns = 0;  // wall clock, for the record only
  Caller caller{};
};

struct JobCancelRequested {
  RequestToken token;
  JobId job;
  bool force = false;
  int64_t unix_ns = 0;
  Caller caller{};
};

struct JobCheckpointRequested {
  RequestToken token;
  JobId job;
  int64_t unix_ns = 0;
  Caller caller{};
};

// A request to change the spec of a job, or to withdraw such a change before an attempt has it.
struct JobUpdateRequested {
  RequestToken token;
  JobId job;
  std::string request_id;  // the client's dedupe key
  int32_t revision = 0;    // the revision that the client has changed
  std::string change;      // "learning_rate=1e-4"
  // The changed fields; job_update.h reads those that can change. The environment has only the
  // variables that change.
  JobSpec spec;
  int64_t rollback_steps = 0;
  UpdateTime time = UpdateTime::kAfterSave;
  bool withdraws = false;
  int64_t unix_ns = 0;
  Caller caller{};
};

struct RunningRank {
  JobId job;
  Attempt attempt;
  Rank rank;
  int32_t pid = 0;
};

// A worker's first message on each connection. Before its first heartbeat on the connection, the
// worker repeats every report that was not acknowledged. A rank that is neither listed in `running`
// nor reported before that heartbeat is lost.
struct WorkerRegistered {
  WorkerName worker;
  Incarnation incarnation;
  std::string version;
  std::string host;
  int32_t slots = 0;
  std::string rendezvous_address;
  PortRange program_ports{};
  NodePlace place;
  // The state store to which the ranks in `running` belong.
  StoreId store;
  std::vector<RunningRank> running;
  // The worker's WorkerLeaving::grace, if the worker is shutting down.
  std::optional<Duration> leaving;
  int64_t unix_ns = 0;
  // The GPUs of the node that can be assigned to ranks exclusively.
  std::vector<Gpu> gpus{};
  // A clause that explains why `gpus` is empty.
  std::string no_gpus_because{};
  // The node's network addresses: "10.0.0.2".
  std::vector<std::string> addresses{};
  NodeLabels labels{};
};

// The worker's stream broke. The worker retains its slots and ranks until its lease expires.
struct WorkerDisconnected {
  WorkerName worker;
  Incarnation incarnation;
  int64_t unix_ns = 0;
};

// The worker is shutting down. Repeated with each registration.
struct WorkerLeaving {
  WorkerName worker;
  Incarnation incarnation;
  // The time until the worker kills its ranks.
  Duration grace{};
  int64_t unix_ns = 0;
};

// The progress page of one rank, in a heartbeat.
struct RankProgress {
  JobId job;
  Attempt attempt;
  Rank rank;
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
  Duration last_progress_age{};
  int64_t checkpoint_step = -1;
  StepTimes step_times;  // since the attempt began; used only for metrics
  CheckpointTimes checkpoints;
  Duration phase_age{};
  double collective_wait_seconds = 0;  // since the attempt began
  double data_wait_seconds = 0;
  char process_state = '?';  // state letter in /proc/PID/stat
  std::vector<StalledLink> stalled_links{};
  ThreadSamples main_thread{};
};

struct HeartbeatReceived {
  WorkerName worker;
  Incarnation incarnation;
  std::vector<RankProgress> ranks;
  int64_t unix_ns = 0;
};

struct RankExited {
  WorkerName worker;
  Incarnation incarnation;
  uint64_t report_id = 0;
  JobId job;
  Attempt attempt;
  Rank rank;
  int32_t exit_code = 0;  // -1 when killed by a signal
  int32_t signal = 0;
  int64_t last_step = -1;
  std::string detail;
  int64_t unix_ns = 0;
  ExitCause cause = ExitCause::kUnknown;
  std::shared_ptr<const EndEvidence> evidence{};  // may be null
  bool stop_ordered = false;
  bool output_incomplete = false;  // see RankExit
  std::string lost_link{};         // see RankExit
  bool link_is_down = false;       // see RankExit
};

// A request for the current stacks of a job's ranks. The core answers with ReplyStacks.
struct StacksRequested {
  RequestToken token;
  JobId job;
  Rank rank{-1};  // -1: all ranks
  int64_t unix_ns = 0;
  // Whether the workers also request the dumps that programs can make of themselves.
  bool program_dumps = false;
  Caller caller{};
};

// One worker's part of one sample of a dump.
struct StackReportReceived {
  WorkerName worker;
  Incarnation incarnation;
  DumpId dump;
  JobId job;
  Attempt attempt;
  int32_t sample = 0;  // from 0
  StackTree stacks;
  std::vector<RankEvidence> ranks;  // every requested rank
  std::vector<std::string> kernel_messages;
  int64_t unix_ns = 0;
};

// The worker's answer to SendSymbolize. The symbol is empty for an address that the worker could
// not resolve.
struct SymbolsReceived {
  WorkerName worker;
  Incarnation incarnation;
  DumpId dump;
  StackModule module;
  std::vector<std::pair<uint64_t, FrameSymbol>> symbols;
  int64_t unix_ns = 0;
};

// The worker's answer to SendCheckNode.
struct NodeChecked {
  WorkerName worker;
  Incarnation incarnation;
  uint64_t check = 0;
  NodeCheckResult result;
  int64_t unix_ns = 0;
  std::optional<DeepCheckFigures> deep{};  // set for a deep check
};

// A request for deep checks of idle nodes. The core answers with Reply.
struct NodeSweepRequested {
  RequestToken token;
  std::vector<WorkerName> workers;  // empty: all idle nodes that are not excluded
  double seconds = 0;               // 0: the default
  std::string storage_folder;
  bool links = true;
  int64_t unix_ns = 0;
};

// A request to exclude a node from placement, for `time` or until it is admitted again. The node's
// ranks continue to run; with `evacuate` they save a checkpoint, and their jobs continue on other
// nodes.
struct NodeExcludeRequested {
  RequestToken token;
  WorkerName worker;
  std::string reason;
  std::optional<Duration> time;
  int64_t unix_ns = 0;
  bool evacuate = false;
  // The time by which all ranks must have left the node; 0: running ranks stay, or leave at once
  // with `evacuate`.
  int64_t drain_unix_ns = 0;
  // A drain that is far ahead excludes the node only from shortly before it on.
  bool late = false;
};

// A request to end the exclusion of a node.
struct NodeAdmitRequested {
  RequestToken token;
  WorkerName worker;
  int64_t unix_ns = 0;
};

// The queue policy was read, or read again after a change. Without the event there is no policy.
struct QueuePolicyChanged {
  std::optional<QueuePolicy> policy{};
  int64_t unix_ns = 0;
  // The text from which the policy was read. It is stored, for a coordinator that starts while the
  // file is invalid.
  std::string text{};
};

// A deadline returned by next_deadline() may have passed.
struct Tick {
  int64_t unix_ns = 0;
  // The workers of Core::silent_workers() whose messages have arrived, but were not read yet. Their
  // leases do not end.
  std::vector<WorkerName> unread{};
  // True if the coordinator has not yet read messages of many workers. No worker then counts as
  // silent.
  bool is_behind = false;
};

using Event = std::variant<JobSubmitted, JobCancelRequested, JobCheckpointRequested,
                           JobUpdateRequested, WorkerRegistered, WorkerDisconnected, WorkerLeaving,
                           HeartbeatReceived, RankExited, StacksRequested, StackReportReceived,
                           SymbolsReceived, NodeChecked, NodeExcludeRequested, NodeAdmitRequested,
                           NodeSweepRequested, QueuePolicyChanged, Tick>;

}  // namespace muster::coordinator

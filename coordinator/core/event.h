// The events of the coordinator. The shell turns RPCs, timers and lost streams into these
// values; nothing here knows about gRPC. Every event that concerns one launch carries (job,
// attempt) and every one from a worker (worker, incarnation), so that stale ones are recognised and
// refused.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/checkpoint_times.h"
#include "common/gpu.h"
#include "common/ids.h"
#include "common/port_range.h"
#include "common/progress_page.h"
#include "common/rank_evidence.h"
#include "common/step_times.h"
#include "common/time.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/node_record.h"

namespace muster::coordinator {

// Names the caller that waits for a Reply action; unique among waiting callers.
using RequestToken = StrongId<struct RequestTokenTag, uint64_t>;

struct JobSubmitted {
  RequestToken token;
  std::string request_id;  // the client's dedupe key
  JobSpec spec;
  int64_t unix_ns = 0;  // wall clock, for the record only
};

struct JobCancelRequested {
  RequestToken token;
  JobId job;
  bool force = false;
  int64_t unix_ns = 0;
};

struct JobCheckpointRequested {
  RequestToken token;
  JobId job;
  int64_t unix_ns = 0;
};

struct RunningRank {
  JobId job;
  Attempt attempt;
  Rank rank;
  int32_t pid = 0;
};

// A worker's first message on each connection. What it had not yet been acknowledged, it repeats
// before its first heartbeat on that connection: a rank that is neither running nor reported by
// then is lost.
struct WorkerRegistered {
  WorkerName worker;
  Incarnation incarnation;
  std::string version;
  std::string host;
  int32_t slots = 0;
  std::string rendezvous_address;
  PortRange program_ports{};
  std::string switches;  // above its node, the outermost first: "spine.leaf3"; empty: not known
  StoreId store;         // whose ranks `running` lists
  std::vector<RunningRank> running;
  std::optional<Duration> leaving;  // as WorkerLeaving's grace, of one that leaves
  int64_t unix_ns = 0;
  std::vector<Gpu> gpus{};        // of its node, that ranks may have to themselves
  std::string no_gpus_because{};  // a clause, where there are none
};

// The stream broke. The worker keeps its slots and its ranks until its lease runs out.
struct WorkerDisconnected {
  WorkerName worker;
  Incarnation incarnation;
  int64_t unix_ns = 0;
};

// The worker was asked to end. Repeated with each registration.
struct WorkerLeaving {
  WorkerName worker;
  Incarnation incarnation;
  Duration grace{};  // until it kills its ranks
  int64_t unix_ns = 0;
};

struct RankProgress {
  JobId job;
  Attempt attempt;
  Rank rank;
  int32_t pid = 0;
  Phase phase = Phase::kInit;
  int64_t step = -1;
  double loss = 0;
  double grad_norm = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double tflops_per_device = 0;
  double device_peak_tflops = 0;
  Duration last_progress_age{};
  int64_t checkpoint_step = -1;
  StepTimes step_times;  // since the attempt began; for the metrics alone
  CheckpointTimes checkpoints;
  Duration phase_age{};
  double collective_wait_seconds = 0;  // since the attempt began, as step_times
  double data_wait_seconds = 0;
  char process_state = '?';  // of /proc
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
  std::shared_ptr<const EndEvidence> evidence{};  // null: none
  bool told_to_stop = false;
};

// Somebody wants to see the stacks of a job's ranks now; answered by ReplyStacks.
struct StacksRequested {
  RequestToken token;
  JobId job;
  Rank rank{-1};  // -1: all of them
  int64_t unix_ns = 0;
  bool program_dumps = false;  // also what their programs can dump of themselves
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
  std::vector<RankEvidence> ranks;  // each rank that was asked for
  std::vector<std::string> kernel_messages;
  int64_t unix_ns = 0;
};

// Answers SendSymbolize. An address that the worker could not name comes with an empty symbol.
struct SymbolsReceived {
  WorkerName worker;
  Incarnation incarnation;
  DumpId dump;
  StackModule module;
  std::vector<std::pair<uint64_t, FrameSymbol>> symbols;
  int64_t unix_ns = 0;
};

// Answers SendCheckNode.
struct NodeChecked {
  WorkerName worker;
  Incarnation incarnation;
  uint64_t check = 0;
  NodeCheckResult result;
  int64_t unix_ns = 0;
};

// Somebody wants nothing placed on a node any more, for `time` or until somebody admits it. What
// runs there runs on, or (`evacuate`) saves and goes on elsewhere.
struct NodeExcludeRequested {
  RequestToken token;
  WorkerName worker;
  std::string reason;
  std::optional<Duration> time;
  int64_t unix_ns = 0;
  bool evacuate = false;
};

struct NodeAdmitRequested {
  RequestToken token;
  WorkerName worker;
  int64_t unix_ns = 0;
};

// A deadline that next_deadline() named may have passed.
struct Tick {
  int64_t unix_ns = 0;
};

using Event = std::variant<JobSubmitted, JobCancelRequested, JobCheckpointRequested,
                           WorkerRegistered, WorkerDisconnected, WorkerLeaving, HeartbeatReceived,
                           RankExited, StacksRequested, StackReportReceived, SymbolsReceived,
                           NodeChecked, NodeExcludeRequested, NodeAdmitRequested, Tick>;

}  // namespace muster::coordinator

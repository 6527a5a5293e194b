// Events: the worker core's input. The shell translates the coordinator's messages, processes,
// progress pages and timers into these values. It delivers only messages of the newest stream, in
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/job/ids.h"
#include "common/job/rank_evidence.h"
#include "common/process/exit_code.h"
#include "common/stacks/stack_frame.h"
#include "common/stacks/stack_tree.h"
#include "common/time/time.h"
#include "worker/core/deep_check.h"
#include "worker/core/rank.h"

namespace muster::worker {

// The stream requested by Connect is open and accepts messages.
struct Connected {};

// The reason for which a stream ended.
enum class StreamEnd {
  kBroken,  // the stream broke or could not be opened: a retry may help
  // the coordinator rejects this worker, for example because of its version
  kRefused,
  // another worker has registered with this name, and the coordinator counts this worker's ranks as
  // lost
  kReplaced,
  // none of several coordinators leads at this address, and the others were not tried yet
  kElsewhere,
};

// The stream ended, or could not be opened.
struct Disconnected {
  StreamEnd end = StreamEnd::kBroken;
  std::string reason;
};

// The coordinator has accepted this worker.
struct Registered {
  Epoch epoch;
  Duration heartbeat_interval{};
  StoreId store{};
  // jobs that were launched and have not ended: only these jobs may have local copies on nodes
  std::set<JobId> unfinished{};
  // The heartbeat interval while there are ranks. Zero: a fraction of heartbeat_interval
  // (kBusyHeartbeats).
  Duration busy_interval{};
  // The time over which the fleet's workers spread their reconnections.
  Duration spread{};
  // The coordinator is one of several with a common store: it answers heartbeats, and its epoch is
  // higher than those of its predecessors.
  bool is_replicated = false;
  // The newest epoch of the common store that the coordinator's state includes, if it has left this
  // store; 0: it never had one.
  Epoch left_at{};
};

// The coordinator has answered a heartbeat.
struct HeartbeatAnswered {};

// The coordinator has changed the intervals, because the fleet's size has changed.
struct PaceChanged {
  Epoch epoch;
  Duration heartbeat_interval{};
  Duration busy_interval{};
  Duration spread{};
};

// The coordinator requests the start of ranks on this worker.
struct StartRanks {
  Epoch epoch;
  Launch launch;
};

// The coordinator requests the end of this worker's ranks of one attempt.
struct StopRanks {
  Epoch epoch;
  JobId job;
  Attempt attempt;
  Duration grace{};  // time from SIGTERM to SIGKILL; zero: SIGKILL at once
  std::string reason;
  std::vector<Rank> ranks{};    // ranks of this worker whose ends the coordinator waits for
  bool waits_for_save = false;  // see RankState::waits_for_save in core.h
};

// The coordinator requests a checkpoint from one rank.
struct SaveCheckpoint {
  Epoch epoch;
  RankKey key;
};

// The coordinator requests stacks and evidence of ranks of this worker. The fields are those of
// muster.v1.DumpStacks.
struct DumpStacks {
  Epoch epoch;
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t samples = 1;
  Duration apart{};
  Duration deadline{};
  std::vector<Rank> ranks;
};

// The coordinator requests symbols for addresses of a module that ranks of `launch` have mapped.
struct Symbolize {
  Epoch epoch;
  LaunchKey launch;
  uint64_t dump = 0;
  StackModule module;
  std::vector<uint64_t> addresses;
};

// The coordinator requests a check of this node.
struct CheckNode {
  Epoch epoch;
  uint64_t check = 0;
  std::optional<DeepCheckOrder> deep{};  // nullopt: the short check
};

// A job has ended: its local copies may be removed.
struct JobEnded {
  Epoch epoch;
  JobId job;
};

// The coordinator has acknowledged a report of a rank's end.
struct ReportAcked {
  uint64_t report_id = 0;
};

// Answers SpawnRank: the rank runs.
struct RankStarted {
  RankKey key;
  int32_t pid = 0;
};

// Answers SpawnRank: the rank could not be started.
struct SpawnFailed {
  RankKey key;
  std::string reason;
  int32_t exit_code = to_int(ExitCode::kFailure);
  ExitCause cause = ExitCause::kUnknown;  // kNodeFault: the node is the cause, not the job
};

// A started rank has ended, and the shell has reaped its process.
struct RankReaped {
  RankKey key;
  int32_t exit_code = 0;                 // -1: killed by a signal
  int32_t signal = 0;                    // the signal that killed the rank; 0: it exited by itself
  int64_t last_step = -1;                // the step in the rank's page, read after the end
  std::string detail;                    // the last line of the rank's output
  std::optional<RankFigures> figures{};  // the last figures in the rank's page; nullopt: unreadable
  ExitCause cause = ExitCause::kUnknown;
  std::shared_ptr<const EndEvidence> evidence{};  // null: nothing could be read in time
  // The loss of a link of the node that may explain a lost peer, as a clause; empty: there is none.
  std::string lost_link{};
  bool link_is_down = false;       // this link is still down
  bool worker_left = false;        // the worker was already leaving when the rank was reaped
  bool output_incomplete = false;  // the disk of its log was full while it ran
};

// The coordinator's host has acknowledged nothing on the open stream for some seconds, although the
// worker has sent messages. After a network outage, TCP retransmits them ever more seldom, so the
// stream may stay silent long after the network is back.
struct StreamUnanswered {};

// Answers ForgetRank: the coordinator has acknowledged the rank's complete log.
struct LogSettled {
  RankKey key;
};

// The shell has found launch folders of earlier runs of this worker under its work directory. The
// shell sends this event before any rank starts.
struct LaunchesFound {
  std::vector<LaunchKey> oldest_first;
};

// Answers ReadPages with the pages that could be read. Ranks are left out if their page is missing,
// was read in the middle of a write, or belongs to another launch.
struct PageResults {
  struct Page {
    RankKey key;
    RankFigures figures;
  };
  std::vector<Page> pages;
};

// Answers ReadStacks with an entry for each rank of the request, in any order.
struct StackResults {
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t sample = 0;
  std::shared_ptr<const StackTree> stacks;  // tens of thousands of nodes; null: none
  std::vector<RankEvidence> ranks;
  std::vector<std::string> kernel_messages;
};

// Answers ReadSymbols with an entry for each address.
struct SymbolResults {
  uint64_t dump = 0;
  StackModule module;
  std::vector<std::pair<uint64_t, FrameSymbol>> symbols;
};

// Answers RunNodeCheck.
struct NodeCheckDone {
  bool passed = false;
  double seconds = 0;
  std::string sentence;  // the failure, or the parts of the check that were skipped
  std::string details;   // the parts of the check and their speeds
};

// Answers RunDeepCheck.
struct DeepCheckDone {
  NodeCheckDone result;
  DeepCheckFigures figures;
};

// The problems of the worker's GPUs have changed.
struct GpusChanged {
  std::vector<std::string> problems;  // one per GPU of CoreOptions::gpus; empty: healthy
};

// The deadline that next_deadline() returned may have passed.
struct Tick {};

// The operator stops the worker. A second such event makes the core kill all remaining ranks.
struct ShutdownRequested {};

using Event =
    std::variant<Connected, Disconnected, Registered, StartRanks, StopRanks, SaveCheckpoint,
                 DumpStacks, Symbolize, CheckNode, JobEnded, PaceChanged, ReportAcked, LogSettled,
                 LaunchesFound, RankStarted, SpawnFailed, RankReaped, PageResults, StackResults,
                 SymbolResults, NodeCheckDone, DeepCheckDone, GpusChanged, StreamUnanswered,
                 HeartbeatAnswered, Tick, ShutdownRequested>;

}  // namespace muster::worker

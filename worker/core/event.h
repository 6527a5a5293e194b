// Events: the worker core's input. The shell translates the stream, processes, pages and timers
// into these values. It delivers messages of the newest stream only, in order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/exit_code.h"
#include "common/ids.h"
#include "common/rank_evidence.h"
#include "common/stack_frame.h"
#include "common/stack_tree.h"
#include "common/time.h"
#include "worker/core/rank.h"

namespace muster::worker {

// The stream requested by Connect is open and accepts messages.
struct Connected {};

enum class StreamEnd {
  kBroken,  // or could not be opened: a retry may help
  // the coordinator rejects this worker, for example because of its version
  kRefused,
  // the coordinator has another worker of this name, and has written off this one's ranks
  kReplaced,
};

// The stream ended, or could not be opened.
struct Disconnected {
  StreamEnd end = StreamEnd::kBroken;
  std::string reason;
};

struct Registered {
  Epoch epoch;
  Duration heartbeat_interval{};
  StoreId store{};
  // jobs that were launched and have not ended: only these may keep local copies on nodes
  std::set<JobId> unfinished{};
};

struct StartRanks {
  Epoch epoch;
  Launch launch;
};

struct StopRanks {
  Epoch epoch;
  JobId job;
  Attempt attempt;
  Duration grace{};  // zero: kill at once
  std::string reason;
  std::vector<Rank> ranks{};    // of this worker, whose ends the coordinator waits for
  bool waits_for_save = false;  // save_progress.h
};

struct SaveCheckpoint {
  Epoch epoch;
  RankKey key;
};

// The coordinator requests stacks and evidence of ranks of this worker; see muster.v1.DumpStacks.
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
};

struct JobEnded {
  Epoch epoch;
  JobId job;
};

struct ReportAcked {
  uint64_t report_id = 0;
};

struct RankStarted {
  RankKey key;
  int32_t pid = 0;
};

struct SpawnFailed {
  RankKey key;
  std::string reason;
  int32_t exit_code = to_int(ExitCode::kFailure);
};

struct RankReaped {
  RankKey key;
  int32_t exit_code = 0;                 // -1: killed by a signal
  int32_t signal = 0;                    // 0: exited by itself
  int64_t last_step = -1;                // from its page, read after its death
  std::string detail;                    // the last line of its output
  std::optional<RankFigures> figures{};  // the last ones of its page, if readable
  ExitCause cause = ExitCause::kUnknown;
  std::shared_ptr<const EndEvidence> evidence{};  // null: none could be read in time
  bool worker_left = false;  // the worker was already leaving when the rank was reaped
};

// Answers ForgetRank: the coordinator has acknowledged the rank's complete log.
struct LogSettled {
  RankKey key;
};

// Folders of earlier runs of this worker, found under its work directory. Sent before any rank
// starts.
struct LaunchesFound {
  std::vector<LaunchKey> oldest_first;
};

// Answers ReadPages with the pages that could be read. Omits ranks whose page is missing, torn or
// of another launch.
struct PagesRead {
  struct Page {
    RankKey key;
    RankFigures figures;
  };
  std::vector<Page> pages;
};

// Answers ReadStacks with an entry for each rank that it named, in any order.
struct StacksRead {
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t sample = 0;
  std::shared_ptr<const StackTree> stacks;  // tens of thousands of nodes; null: none
  std::vector<RankEvidence> ranks;
  std::vector<std::string> kernel_messages;
};

// Answers ReadSymbols with an entry for each address.
struct SymbolsRead {
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

// The problems of the worker's GPUs have changed.
struct GpusChanged {
  std::vector<std::string> problems;  // by GPU, as CoreOptions::gpus; empty: healthy
};

// A deadline returned by next_deadline() may have passed.
struct Tick {};

// The operator stops the worker. The second one kills all remaining ranks.
struct ShutdownRequested {};

using Event =
    std::variant<Connected, Disconnected, Registered, StartRanks, StopRanks, SaveCheckpoint,
                 DumpStacks, Symbolize, CheckNode, JobEnded, ReportAcked, LogSettled, LaunchesFound,
                 RankStarted, SpawnFailed, RankReaped, PagesRead, StacksRead, SymbolsRead,
                 NodeCheckDone, GpusChanged, Tick, ShutdownRequested>;

}  // namespace muster::worker

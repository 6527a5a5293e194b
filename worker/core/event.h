// What can happen to a worker. The shell turns the stream, processes, pages and timers into these
// values.
//
// The shell delivers messages of the newest stream only, in the order in which they came.
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

// The stream that a Connect action asked for exists and takes messages.
struct Connected {};

enum class StreamEnd {
  kBroken,   // or could not be opened: asking again may help
  kRefused,  // the coordinator does not take this worker as it is, its version for one
  kReplaced,  // the coordinator has another worker of this name, and has written off what this one runs
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
  std::set<JobId>
      unfinished{};  // jobs that were launched and have not ended: what nodes keep beyond attempts is for these alone
};

struct StartRanks {
  Epoch epoch;
  Launch launch;
};

struct StopRanks {
  Epoch epoch;
  JobId job;
  Attempt attempt;
  Duration grace{};  // zero kills at once
  std::string reason;
  std::vector<Rank> ranks{};  // of this worker, whose ends the coordinator waits for
};

struct SaveCheckpoint {
  Epoch epoch;
  RankKey key;
};

// The coordinator wants stacks and evidence of ranks of this worker; see muster.v1.DumpStacks.
struct DumpStacks {
  Epoch epoch;
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t samples = 1;
  Duration apart{};
  Duration deadline{};
  std::vector<Rank> ranks;
};

// It wants to know what places in a module are called, that ranks of `launch` have mapped.
struct Symbolize {
  Epoch epoch;
  LaunchKey launch;
  uint64_t dump = 0;
  StackModule module;
  std::vector<uint64_t> addresses;
};

// It wants to know whether this node is good for ranks.
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
  int32_t exit_code = 0;                 // -1 when killed by a signal
  int32_t signal = 0;                    // 0 when it left by itself
  int64_t last_step = -1;                // from its page, read after its death
  std::string detail;                    // the last line of its output
  std::optional<RankFigures> figures{};  // its page's last ones, if it could be read
  ExitCause cause = ExitCause::kUnknown;
  std::shared_ptr<const EndEvidence> evidence{};  // null: none could be read in time
  bool worker_left = false;                       // had been told to, when this was reaped
};

// Answers a ForgetRank action: the coordinator has acknowledged the whole of the rank's log.
struct LogSettled {
  RankKey key;
};

// The folders that earlier lives of this worker left under its work directory. Before anything is started.
struct LaunchesFound {
  std::vector<LaunchKey> oldest_first;
};

// Answers a ReadPages action: the pages that could be read. A rank whose page is missing, torn or
// another launch's is left out.
struct PagesRead {
  struct Page {
    RankKey key;
    RankFigures figures;
  };
  std::vector<Page> pages;
};

// Answers a ReadStacks action: an entry for each rank that it named, in any order.
struct StacksRead {
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t sample = 0;
  std::shared_ptr<const StackTree> stacks;  // of tens of thousands of nodes; null: none
  std::vector<RankEvidence> ranks;
  std::vector<std::string> kernel_messages;
};

// Answers a ReadSymbols action: an entry for each place.
struct SymbolsRead {
  uint64_t dump = 0;
  StackModule module;
  std::vector<std::pair<uint64_t, FrameSymbol>> symbols;
};

// Answers a RunNodeCheck action.
struct NodeCheckDone {
  bool passed = false;
  double seconds = 0;
  std::string sentence;  // what is wrong, or what was left out
  std::string details;   // what was looked at, and how fast it was
};

// What is wrong with the worker's GPUs has changed.
struct GpusChanged {
  std::vector<std::string> problems;  // of each, as CoreOptions::gpus; empty: it is good
};

// A deadline that next_deadline() named may have passed.
struct Tick {};

// The operator wants the worker to leave. The second one kills what is still running.
struct ShutdownRequested {};

using Event =
    std::variant<Connected, Disconnected, Registered, StartRanks, StopRanks, SaveCheckpoint,
                 DumpStacks, Symbolize, CheckNode, JobEnded, ReportAcked, LogSettled, LaunchesFound,
                 RankStarted, SpawnFailed, RankReaped, PagesRead, StacksRead, SymbolsRead,
                 NodeCheckDone, GpusChanged, Tick, ShutdownRequested>;

}  // namespace muster::worker

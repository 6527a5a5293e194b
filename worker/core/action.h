// What the worker core wants done; the shell carries the actions of one step out in the order
// given.
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
#include "common/gpu.h"
#include "common/ids.h"
#include "common/port_range.h"
#include "common/rank_evidence.h"
#include "common/stack_tree.h"
#include "common/time.h"
#include "worker/core/rank.h"

namespace muster::worker {

// Open a stream to the coordinator; answered by Connected or Disconnected.
struct Connect {};

// Give the stream up; answered by Disconnected.
struct Disconnect {
  std::string reason;
};

// Start one rank; answered by RankStarted and later RankReaped, or by SpawnFailed.
struct SpawnRank {
  RankKey key;
  int32_t local_rank = 0;
  std::shared_ptr<const Launch> launch;  // shared by the ranks of one launch: configs are kilobytes
  StoreId store{};                       // whose number the job's is
};

// Send `signo` to the rank's process group.
struct SignalRank {
  RankKey key;
  int signo = 0;
};

// Read the pages of these ranks; answered by PagesRead.
struct ReadPages {
  std::vector<RankKey> ranks;
};

// Read stacks and evidence of ranks now; answered by StacksRead when all are read or the deadline is over. Takes its time beside
// everything else. One at a time per dump.
struct ReadStacks {
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t sample = 0;
  int32_t samples = 1;  // of the dump
  Duration deadline{};
  std::vector<Rank> ranks;  // that are up here
};

// Find out what places in a module are called; answered by SymbolsRead with an entry for each.
struct ReadSymbols {
  LaunchKey launch;
  uint64_t dump = 0;
  StackModule module;
  std::vector<uint64_t> addresses;
};

// Check this node; answered by NodeCheckDone, within a deadline that the shell keeps. Takes its time beside everything else. One at a time.
struct RunNodeCheck {};

// The first message of a stream. `running` lists every rank whose end the coordinator has not
// acknowledged, so that a rank that is not listed was never started or has been accounted for. The
// reports themselves follow once the coordinator has answered with Registered.
struct SendRegister {
  WorkerName worker;
  Incarnation incarnation;
  std::string version;
  std::string host;
  int32_t slots = 0;
  std::string rendezvous_address;
  PortRange program_ports{};
  std::string switches;
  std::vector<Gpu> gpus;
  std::string no_gpus_because;
  StoreId store;  // whose ranks `running` lists
  std::vector<RunningRank> running;
  std::optional<Duration> leaving;  // SendLeaving's grace, of a worker that leaves
};

// This worker leaves: all ranks of the launches that have some here are to save and leave. Before any report of one that does.
struct SendLeaving {
  Duration grace{};  // until this worker kills its ranks
};

struct SendHeartbeat {
  std::vector<RankProgress> ranks;  // those whose figures changed since the last one
};

// One sample of a dump, as it was read.
struct SendStackReport {
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t sample = 0;
  std::shared_ptr<const StackTree> stacks;  // null: none
  std::vector<RankEvidence> ranks;
  std::vector<std::string> kernel_messages;
};

struct SendSymbols {
  uint64_t dump = 0;
  StackModule module;
  std::vector<std::pair<uint64_t, FrameSymbol>> symbols;
};

struct SendNodeChecked {
  uint64_t check = 0;
  bool passed = false;
  double seconds = 0;
  std::string sentence;
  std::string details;
};

// The shell sends the rest of the rank's log before it.
struct SendRankExited {
  uint64_t report_id = 0;
  RankKey key;
  int32_t exit_code = 0;
  int32_t signal = 0;
  int64_t last_step = -1;
  std::string detail;
  ExitCause cause = ExitCause::kUnknown;
  std::shared_ptr<const EndEvidence> evidence;  // null: none
  bool told_to_stop = false;                    // it, or its worker, had been told to end
};

// The coordinator has acknowledged the rank's end: its log is kept at hand until that is acknowledged, too. Answered
// by LogSettled.
struct ForgetRank {
  RankKey key;
};

// Nobody will ask for the rank's log any more: let go of it.
struct DropLog {
  RankKey key;
};

// The launch is history: remove its folder, and whatever else is remembered of it.
struct RemoveLaunch {
  LaunchKey launch;
};

// No rank of this launch is on this worker any more, or none ever came: drop what only its ranks needed. May come more
// than once.
struct EndLaunch {
  LaunchKey launch;
};

// Remove what this node keeps of a job of the store for its next attempts (worker/shell/local_copies.h): the job has ended.
struct DropLocalCopies {
  StoreId store;
  JobId job;
};

// The same of all jobs of the store but these.
struct KeepLocalCopies {
  StoreId store;
  std::set<JobId> jobs;
};

// A decision and its reason, for the log.
struct Note {
  bool warning = false;
  std::string text;
};

// Leave the program with `code`. The last action.
struct Exit {
  int code = 0;
  std::string reason;
};

using Action =
    std::variant<Connect, Disconnect, SpawnRank, SignalRank, ReadPages, ReadStacks, ReadSymbols,
                 RunNodeCheck, SendRegister, SendLeaving, SendHeartbeat, SendStackReport,
                 SendSymbols, SendNodeChecked, SendRankExited, ForgetRank, DropLog, RemoveLaunch,
                 EndLaunch, DropLocalCopies, KeepLocalCopies, Note, Exit>;
using ActionList = std::vector<Action>;

}  // namespace muster::worker

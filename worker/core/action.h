// Actions: the worker core's output. The shell carries out the actions of one step in order.
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

// Opens a stream to the coordinator. Answered by Connected or Disconnected.
struct Connect {};

// Closes the stream. Answered by Disconnected.
struct Disconnect {
  std::string reason;
};

// Starts one rank. Answered by RankStarted and later RankReaped, or by SpawnFailed.
struct SpawnRank {
  RankKey key;
  int32_t local_rank = 0;
  std::shared_ptr<const Launch> launch;  // shared by the ranks of one launch: configs are kilobytes
  StoreId store{};                       // scope of the job's number
};

// Sends `signo` to the rank's process group.
struct SignalRank {
  RankKey key;
  int signo = 0;
};

// Reads the pages of these ranks. Answered by PagesRead.
struct ReadPages {
  std::vector<RankKey> ranks;
};

// Reads stacks and evidence of ranks in the background. Answered by StacksRead when all are read or
// the deadline has passed. At most one at a time per dump.
struct ReadStacks {
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t sample = 0;
  int32_t samples = 1;  // of the dump
  Duration deadline{};
  std::vector<Rank> ranks;  // running on this worker
};

// Resolves addresses of a module to symbols. Answered by SymbolsRead with an entry for each.
struct ReadSymbols {
  LaunchKey launch;
  uint64_t dump = 0;
  StackModule module;
  std::vector<uint64_t> addresses;
};

// Checks this node in the background. Answered by NodeCheckDone within a deadline that the shell
// enforces. At most one at a time.
struct RunNodeCheck {};

// The first message of a stream. `running` lists every rank whose end the coordinator has not
// acknowledged: an unlisted rank was never started or is accounted for. The end reports follow once
// the coordinator has answered with Registered.
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
  StoreId store;  // scope of the job numbers in `running`
  std::vector<RunningRank> running;
  std::optional<Duration> leaving;  // SendLeaving's grace if the worker is leaving
};

// Announces that this worker leaves: every rank of its launches, on all workers, must save and
// exit. Sent before any report of a rank that does.
struct SendLeaving {
  Duration grace{};  // until this worker kills its ranks
};

struct SendHeartbeat {
  std::vector<RankProgress> ranks;  // whose figures changed since the last heartbeat
};

// One sample of a dump.
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

// Reports a rank's end. The shell sends the rest of the rank's log first.
struct SendRankExited {
  uint64_t report_id = 0;
  RankKey key;
  int32_t exit_code = 0;
  int32_t signal = 0;
  int64_t last_step = -1;
  std::string detail;
  ExitCause cause = ExitCause::kUnknown;
  std::shared_ptr<const EndEvidence> evidence;  // null: none
  bool told_to_stop = false;  // this worker had signalled it to end, or was itself leaving
};

// The coordinator has acknowledged the rank's end. The shell keeps the log open until that is
// acknowledged, too. Answered by LogSettled.
struct ForgetRank {
  RankKey key;
};

// Closes the rank's log; no one will request it again.
struct DropLog {
  RankKey key;
};

// Removes the folder of a finished launch and all other state about it.
struct RemoveLaunch {
  LaunchKey launch;
};

// Releases what only the launch's ranks needed: none of them runs on this worker any more, or none
// was started. May be repeated.
struct EndLaunch {
  LaunchKey launch;
};

// Removes this node's local copies of an ended job (worker/shell/local_copies.h).
struct DropLocalCopies {
  StoreId store;
  JobId job;
};

// Removes local copies of all jobs of the store except these.
struct KeepLocalCopies {
  StoreId store;
  std::set<JobId> jobs;
};

// A decision and its reason, for the log.
struct Note {
  bool warning = false;
  std::string text;
};

// Leaves the program with `code`. Always the last action.
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

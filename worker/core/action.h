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

#include "common/job/gpu.h"
#include "common/job/ids.h"
#include "common/job/node_labels.h"
#include "common/job/rank_evidence.h"
#include "common/process/exit_code.h"
#include "common/process/port_range.h"
#include "common/stacks/stack_tree.h"
#include "common/time/time.h"
#include "worker/core/deep_check.h"
#include "worker/core/rank.h"

namespace muster::worker {

// Opens a stream to the coordinator. The shell answers with the event Connected or Disconnected.
struct Connect {
  Duration within{};  // time limit for the connection, without the registration
};

// Closes the stream. The shell answers with Disconnected.
struct Disconnect {
  std::string reason;
};

// Starts one rank. The shell answers with RankStarted and later RankReaped, or with SpawnFailed.
struct SpawnRank {
  RankKey key;
  int32_t local_rank = 0;
  std::shared_ptr<const Launch> launch;  // shared by the ranks of one launch: configs are kilobytes
  StoreId store{};                       // the state store in which the job has its number
};

// Sends `signo` to the rank's process group.
struct SignalRank {
  RankKey key;
  int signo = 0;
};

// Reads the progress pages of these ranks. The shell answers with PageResults.
struct ReadPages {
  std::vector<RankKey> ranks;
};

// Reads stacks and evidence of ranks in the background. The shell answers with StackResults when it
// has read all ranks or the deadline has passed. A dump has at most one such action at a time.
struct ReadStacks {
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t sample = 0;
  int32_t samples = 1;  // number of samples of the dump
  Duration deadline{};
  std::vector<Rank> ranks;  // running on this worker
};

// Resolves addresses of a module to symbols. The shell answers with SymbolResults, which has an
// entry for each address.
struct ReadSymbols {
  LaunchKey launch;
  uint64_t dump = 0;
  StackModule module;
  std::vector<uint64_t> addresses;
};

// Checks this node in the background. The shell answers with NodeCheckDone within its own deadline.
// At most one check runs at a time.
struct RunNodeCheck {};

// Runs a deep check in the background. The shell answers with DeepCheckDone within its deadline. At
// most one deep check runs at a time.
struct RunDeepCheck {
  DeepCheckOrder order;
};

// Kills the running deep check with all its processes. The shell answers RunDeepCheck when they
// have ended, within 4.5 s.
struct StopDeepCheck {};

// Sends the first message of a stream. `running` lists every rank whose end the coordinator has not
// acknowledged: the coordinator concludes that an unlisted rank was never started, or that its end
// is acknowledged. The reports of ends follow once the coordinator has answered with Registered.
struct SendRegister {
  WorkerName worker;
  Incarnation incarnation;
  std::string version;
  std::string host;
  int32_t slots = 0;
  std::string rendezvous_address;
  std::vector<std::string> addresses{};
  PortRange program_ports{};
  std::string switches;
  std::string domain;
  NodeLabels labels{};
  std::vector<Gpu> gpus;
  std::string no_gpus_because;
  StoreId store;  // scope of the job numbers in `running`
  std::vector<RunningRank> running;
  std::optional<Duration> leaving;  // see SendLeaving::grace; nullopt: the worker is not leaving
};

// Announces that this worker leaves: every rank of its launches, on all workers, must save a
// checkpoint and exit. The core sends this before it reports the end of any of these ranks.
struct SendLeaving {
  Duration grace{};  // time until this worker kills its ranks
};

// Sends the newest figures of ranks.
struct SendHeartbeat {
  std::vector<RankProgress> ranks;  // only ranks whose figures changed since the last heartbeat
};

// Sends one sample of a dump.
struct SendStackReport {
  LaunchKey launch;
  uint64_t dump = 0;
  int32_t sample = 0;
  std::shared_ptr<const StackTree> stacks;  // null: none
  std::vector<RankEvidence> ranks;
  std::vector<std::string> kernel_messages;
};

// Sends the symbols that the coordinator requested for a dump.
struct SendSymbols {
  uint64_t dump = 0;
  StackModule module;
  std::vector<std::pair<uint64_t, FrameSymbol>> symbols;
};

// Sends the result of a node check; the fields are those of NodeCheckDone (event.h).
struct SendNodeChecked {
  uint64_t check = 0;
  bool passed = false;
  double seconds = 0;
  std::string sentence;
  std::string details;
  std::optional<DeepCheckFigures> deep{};  // set for a deep check
};

// Reports a rank's end. The shell first sends the rest of the rank's log.
struct SendRankExited {
  uint64_t report_id = 0;
  RankKey key;
  int32_t exit_code = 0;
  int32_t signal = 0;
  int64_t last_step = -1;
  std::string detail;
  ExitCause cause = ExitCause::kUnknown;
  std::shared_ptr<const EndEvidence> evidence;  // null: none
  std::string lost_link;                        // see RankReaped
  bool link_is_down = false;                    // see RankReaped
  // true: this worker had signalled the rank to end, or the worker itself was leaving
  bool told_to_stop = false;
  bool output_incomplete = false;  // the disk of the rank's log was full while it ran
};

// Releases a rank whose end the coordinator has acknowledged. The shell keeps the log open until
// the coordinator has acknowledged the complete log, and then answers with LogSettled.
struct ForgetRank {
  RankKey key;
};

// Closes the rank's log, which will not be requested again.
struct DropLog {
  RankKey key;
};

// Removes the folder of a finished launch and all other state of that launch.
struct RemoveLaunch {
  LaunchKey launch;
};

// Releases the resources that only the launch's ranks needed, when none of these ranks runs on this
// worker any more, or none was started. The core may repeat this action.
struct EndLaunch {
  LaunchKey launch;
};

// Removes this node's local checkpoint copies of an ended job (worker/shell/files/local_copies.h).
struct DropLocalCopies {
  StoreId store;
  JobId job;
};

// Removes the local checkpoint copies of all jobs of the store except `jobs`.
struct KeepLocalCopies {
  StoreId store;
  std::set<JobId> jobs;
};

// Logs a decision and its reason.
struct Note {
  bool warning = false;
  std::string text;
};

// Ends the program with the exit code `code`. This is always the last action.
struct Exit {
  int code = 0;
  std::string reason;
};

using Action = std::variant<Connect, Disconnect, SpawnRank, SignalRank, ReadPages, ReadStacks,
                            ReadSymbols, RunNodeCheck, RunDeepCheck, StopDeepCheck, SendRegister,
                            SendLeaving, SendHeartbeat, SendStackReport, SendSymbols,
                            SendNodeChecked, SendRankExited, ForgetRank, DropLog, RemoveLaunch,
                            EndLaunch, DropLocalCopies, KeepLocalCopies, Note, Exit>;
using ActionList = std::vector<Action>;

}  // namespace muster::worker

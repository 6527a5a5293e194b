// The worker's decisions: a deterministic state machine without clock, I/O, threads or callbacks.
//
//  shell: events ──▶ Core::step(event, now, out) ──▶ actions, carried out in order
//
// The core keeps the stream to the coordinator open, starts and stops ranks on request, sends their
// figures in heartbeats and reports each rank's end until that is acknowledged.
//
// Leaving: when the operator stops the worker, it announces that at once. Its ranks may share a
// model with ranks elsewhere, which only the coordinator can stop, so the coordinator stops all of
// them. If the coordinator does not answer for a while, the worker stops its own ranks.
//
// Without a coordinator, ranks keep running. A coordinator with another state store, where their
// numbers mean other jobs, makes the worker stop them before it accepts work. A refusal ends only a
// worker that has never been registered: the coordinator may have been restarted with another
// version, and may come back.
//
// step() is total: no event makes it fail or throw. It ignores stale, repeated and contradictory
// requests or answers them with a report and its reason.
//
// A worker with ranks sends heartbeats more often, because the hang detector cannot be faster than
// its input.
//
// The shell reads stacks in the background. A dump belongs to the stream on which it was requested:
// after a disconnection the coordinator has continued without it. The same holds for a node check.
//
// A rank's states:
//
//  kWaiting ──older attempt reaped──▶ kSpawning ──RankStarted──▶ kUp ──RankReaped──▶ report, until
//  acknowledged
//     │  StopRanks                        │  SpawnFailed                                ▲
//     └───────────────────────────────────┴─────────────────────────────────────────────┘
//
// A launch is finished when the ends and logs of all its ranks are acknowledged. The newest
// finished launches, also those of earlier runs of the worker, keep their folders.
//
// Single-threaded: only the shell's event-loop thread calls it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/functional/function_ref.h>

#include "common/gpu.h"
#include "common/ids.h"
#include "common/port_range.h"
#include "common/save_progress.h"
#include "common/time.h"
#include "worker/core/action.h"
#include "worker/core/event.h"
#include "worker/core/rank.h"

namespace muster::worker {

// Number of finished launches whose folders remain for inspection. Bounded, so that a worker that
// runs for months does not fill its disk with logs that the coordinator also has.
constexpr size_t kLaunchesKeptMax = 20;

// Time that a leaving worker waits for its ranks after its grace and SIGKILL: a process in D state
// remains until the kernel releases it.
constexpr Duration kLeaveWithout = std::chrono::seconds(5);

// How long a leaving worker waits for its coordinator to stop ranks with peers elsewhere before it
// stops its own ranks: at most kCoordinatorAnswerMax while connected, where an answer takes
// milliseconds; at most kAbsentCoordinatorWaitMax while disconnected, because the coordinator may
// reconnect; in both cases at most 1/kCoordinatorWaitFraction of its grace.
constexpr int kCoordinatorWaitFraction = 4;
constexpr Duration kCoordinatorAnswerMax = std::chrono::seconds(1);
constexpr Duration kAbsentCoordinatorWaitMax = std::chrono::seconds(60);

// Time to write and report a checkpoint before the worker's own supervisor kills it: Slurm and
// Kubernetes wait 30 s, systemd 90 s.
constexpr Duration kLeaveGrace = std::chrono::seconds(25);

struct CoreOptions {
  WorkerName name;
  Incarnation incarnation;  // also the seed of the reconnection jitter
  std::string version;
  std::string host;
  int32_t slots = 1;
  std::string rendezvous_address;
  PortRange program_ports;
  std::string switches;
  std::vector<Gpu> gpus;
  std::string no_gpus_because;  // shown to users if there are none
  size_t launches_kept_max = kLaunchesKeptMax;
  Duration leave_grace = kLeaveGrace;  // from SIGTERM to SIGKILL when the worker leaves
  // delay before a reconnection: short at first, so that a restarted coordinator is found quickly
  Duration retry_first = std::chrono::milliseconds(50);
  // maximum of that delay, which grows: a long absence of the coordinator then costs little
  Duration retry_max = std::chrono::seconds(1);
  // limit for the coordinator's first answer
  Duration registration_budget = std::chrono::seconds(5);
  // limit for acknowledgements when the worker leaves
  Duration farewell_budget = std::chrono::seconds(1);
};

class Core {
 public:
  // The first Tick, due immediately, requests a connection.
  Core(CoreOptions options, Instant now);

  void step(const Event& event, Instant now, ActionList& out);

  // Returns when the shell must send the next Tick, or nullopt if no deadline is pending.
  std::optional<Instant> next_deadline() const;

  // The ranks of this worker, for metrics and tests.
  enum class Life { kWaiting, kSpawning, kUp };
  struct RankState {
    std::shared_ptr<const Launch> launch;
    int32_t local_rank = 0;
    Life life = Life::kWaiting;
    int32_t pid = 0;
    RankFigures figures;
    bool dirty = true;               // figures not yet sent to the coordinator
    bool terminated = false;         // received the signal to end, or will receive it once it is up
    bool killed = false;             // SIGKILL was sent
    std::optional<Instant> kill_at;  // deadline of the signal
    // kill_at moves while the launch's saves make progress (save_progress.h)
    bool waits_for_save = false;
    Duration stop_grace{};
    SaveProgress save;  // of the launch, when kill_at was set
    std::string stop_reason;
    // belongs to a state store that is no longer the coordinator's: its end is not reported
    bool disowned = false;
  };
  const std::map<RankKey, RankState>& ranks() const { return ranks_; }
  const std::map<uint64_t, SendRankExited>& unacknowledged() const { return reports_; }
  bool registered() const { return link_ == Link::kRegistered; }
  int32_t slots() const { return options_.slots; }
  int32_t gpus_used() const;  // owned by ranks, or reserved for waiting ones
  bool leaving() const { return leaving_; }
  bool left() const { return left_; }  // Exit was requested; every further event is ignored

 private:
  // kDown ──retry_at_──▶ kConnecting ──Connected──▶ kGreeting ──Registered──▶ kRegistered
  //  ▲                                                                            │
  //  └────────────────── Disconnected (from any of the others) ───────────────────┘
  enum class Link { kDown, kConnecting, kGreeting, kRegistered };
  // The newest attempt of a job that this worker has received a message about.
  struct Seen {
    Attempt attempt{0};
    bool started = false;  // false: only a StopRanks has named it
    bool stopped = false;
  };

  // One dump of stacks in progress.
  struct Dump {
    DumpStacks request;
    int32_t sample = 0;              // the next sample, or the one being read
    std::optional<Instant> read_at;  // start of the next sample; nullopt while one is being read
    Instant requested_at{};          // start of the sample being read
  };

  void on(const Connected& event, Instant now, ActionList& out);
  void on(const Disconnected& event, Instant now, ActionList& out);
  void on(const Registered& event, Instant now, ActionList& out);
  void on(const StartRanks& event, Instant now, ActionList& out);
  void on(const StopRanks& event, Instant now, ActionList& out);
  void on(const SaveCheckpoint& event, Instant now, ActionList& out);
  void on(const DumpStacks& event, Instant now, ActionList& out);
  void on(const Symbolize& event, Instant now, ActionList& out);
  void on(const CheckNode& event, Instant now, ActionList& out);
  void on(const JobEnded& event, Instant now, ActionList& out);
  void on(const ReportAcked& event, Instant now, ActionList& out);
  void on(const LogSettled& event, Instant now, ActionList& out);
  void on(const LaunchesFound& event, Instant now, ActionList& out);
  void on(const RankStarted& event, Instant now, ActionList& out);
  void on(const SpawnFailed& event, Instant now, ActionList& out);
  void on(const RankReaped& event, Instant now, ActionList& out);
  void on(const PagesRead& event, Instant now, ActionList& out);
  void on(const StacksRead& event, Instant now, ActionList& out);
  void on(const SymbolsRead& event, Instant now, ActionList& out);
  void on(const NodeCheckDone& event, Instant now, ActionList& out);
  void on(const GpusChanged& event, Instant now, ActionList& out);
  void on(const Tick& event, Instant now, ActionList& out);
  void on(const ShutdownRequested& event, Instant now, ActionList& out);

  bool is_stale(Epoch epoch, std::string_view what, ActionList& out) const;
  std::string refusal_reason(const Launch& launch) const;
  bool is_superseded(const RankKey& key) const;
  std::string choose_gpus(Launch& launch, ExitCause& cause) const;
  bool has_its_gpus(const Launch& launch) const;
  void remember(JobId job, const Seen& seen);
  void refuse(const Launch& launch, const std::string& reason, ExitCause cause, ActionList& out);
  void spawn_ready(ActionList& out);
  void stop(const RankKey& key, RankState& rank, Duration grace, const std::string& reason,
            Instant now, ActionList& out);
  void stop_older(JobId job, Attempt attempt, Instant now, ActionList& out);
  static bool is_ending(const RankState& rank) { return rank.terminated || rank.killed; }
  int stop_signal(const RankState& rank, Instant now) const;
  void wait_for_saves(Instant now);
  void stop_all(Duration grace, const std::string& reason, Instant now, ActionList& out);
  void stop_if(absl::FunctionRef<bool(const RankState&)> is_selected, Duration grace,
               const std::string& reason, Instant now, ActionList& out);
  void end_rank(const RankKey& key, SendRankExited report, Instant now, ActionList& out);
  void report(SendRankExited report, ActionList& out);
  static void take_figures(RankState& rank, RankFigures figures, Instant now);
  Duration heartbeat_interval() const;
  void send_heartbeat(Instant now, ActionList& out);
  void read_due_samples(Instant now, ActionList& out);
  void read_sample(uint64_t id, Instant now, ActionList& out);
  void send_last_figures(uint64_t first_report_id, Instant now, ActionList& out);
  void begin_leaving(int code, const std::string& reason, Instant now, ActionList& out);
  Instant leave_requested_at() const;
  Duration wait_for_coordinator() const;
  Duration grace_left(Instant now) const;
  void stop_without_coordinator(Instant now, ActionList& out);
  void leave_when_done(Instant now, ActionList& out);
  void change_store(StoreId store, Instant now, ActionList& out);
  void answer_for_absent(const StopRanks& event, ActionList& out);
  std::optional<Instant> connect_at() const;
  void end_launch(const LaunchKey& launch, ActionList& out);
  void prune_launches(ActionList& out);
  std::vector<RankKey> keys_of(JobId job) const;
  Duration next_retry_delay();

  CoreOptions options_;
  Link link_ = Link::kDown;
  // The store of the newest registration, to which the state below belongs.
  std::optional<StoreId> store_;
  Epoch epoch_;                  // of that store
  std::set<StoreId> abandoned_;  // stores whose copies are removed once none of their ranks runs
  std::optional<Instant> retry_at_;        // kDown
  std::optional<Instant> greeting_until_;  // kConnecting, kGreeting
  std::optional<Instant> heartbeat_at_;    // kRegistered
  Duration heartbeat_interval_ = std::chrono::seconds(1);
  uint32_t retries_ = 0;            // since the last registration
  std::string connection_problem_;  // the last connection problem logged since then
  uint64_t retries_ever_ = 0;       // position in the jitter's stream

  std::map<RankKey, RankState> ranks_;  // until reaped
  std::map<JobId, Seen> seen_;
  std::map<uint64_t, SendRankExited> reports_;     // not acknowledged yet
  std::map<uint64_t, RankProgress> last_figures_;  // of ranks in reports_ that completed steps
  uint64_t next_report_id_ = 1;

  std::map<uint64_t, Dump> dumps_;  // at most kDumpsMax
  size_t pending_addresses_ = 0;    // addresses whose symbols were requested from the shell
  std::optional<uint64_t> check_;   // the node check that the coordinator waits for
  bool check_runs_ = false;         // also for a check that the coordinator no longer waits for
  std::set<RankKey> unsettled_;     // ranks whose end is acknowledged, but not their log
  // Launches that have a folder and an unfinished rank, report or log.
  std::set<LaunchKey> unfinished_;
  // Launches of which only the folder remains, in the order in which they finished.
  std::deque<LaunchKey> finished_;

  std::vector<std::string> gpu_problems_;  // by GPU; shorter: the remaining GPUs are healthy

  bool leaving_ = false;
  Instant leave_by_{};  // deadline after which the ranks are killed, if leaving_
  std::optional<Instant> coordinator_deadline_;  // deadline for the coordinator to stop the ranks
  bool left_ = false;
  int exit_code_ = 0;
  std::string exit_reason_;
  std::optional<Instant> farewell_until_;
};

}  // namespace muster::worker

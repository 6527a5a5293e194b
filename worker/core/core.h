// The worker's decisions: a deterministic state machine without clock, I/O, threads or callbacks.
//
//  shell: events ──▶ Core::step(event, now, out) ──▶ actions, carried out in order
//
// The core keeps the stream to the coordinator open, starts and stops ranks on request, sends the
// ranks' figures in heartbeats, and repeats the report of a rank's end until the coordinator
// acknowledges it.
//
// Leaving: when the operator stops the worker, the worker announces this to the coordinator at
// once. Its ranks may share a model with ranks on other workers. Only the coordinator can stop
// those, so it stops all ranks of the launch. If the coordinator does not answer for a while, the
// worker stops its own ranks.
//
// While the coordinator is unreachable, ranks keep running. If a coordinator has another state
// store, the same job numbers mean other jobs there: the worker stops its ranks before it accepts
// work from that coordinator. If the coordinator refuses the worker, only a worker that has never
// been registered exits: the refusal may come from a coordinator that was restarted with the wrong
// version, and the right one may come back.
//
// One of several coordinators with a common store leads, and each leader has a higher epoch than
// its predecessors. The worker refuses a coordinator that a higher epoch has deposed, and leaves
// one that answers no heartbeat.
//
// No event makes step() fail or throw. It ignores stale, repeated and contradictory requests, or
// answers them with a report that states the reason.
//
// A worker with ranks sends heartbeats more often, because the coordinator's hang detector is only
// as fast as the heartbeats arrive.
//
// The shell reads stacks in the background. A dump belongs to the stream on which the coordinator
// requested it: after a disconnection the worker drops the dump, because the coordinator no longer
// waits for it. The same holds for a node check.
//
// A rank's states:
//
//  kWaiting ──older attempt reaped──▶ kSpawning ──RankStarted──▶ kUp ──RankReaped──▶ report, until
//  acknowledged
//     │  StopRanks                        │  SpawnFailed                                ▲
//     └───────────────────────────────────┴─────────────────────────────────────────────┘
//
// A launch is finished when the ends and logs of all its ranks are acknowledged. The folders of the
// newest finished launches remain, including launches of earlier runs of the worker.
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

#include "common/job/gpu.h"
#include "common/job/ids.h"
#include "common/job/node_labels.h"
#include "common/process/port_range.h"
#include "common/progress/save_progress.h"
#include "common/time/time.h"
#include "worker/core/action.h"
#include "worker/core/event.h"
#include "worker/core/rank.h"
#include "worker/core/retry_delay.h"

namespace muster::worker {

// Number of finished launches whose folders remain for inspection. The number is bounded, so that a
// worker that runs for months does not fill its disk with logs that the coordinator also has.
constexpr size_t kLaunchesKeptMax = 20;

// Time that a leaving worker still waits for its ranks after its grace has passed and it has sent
// SIGKILL: a process in D state (uninterruptible sleep) remains until the kernel releases it.
constexpr Duration kLeaveWithout = std::chrono::seconds(5);

// Time after which one of several coordinators that answers no heartbeat counts as stopped. Another
// one leads by then, or a second later. In a large fleet the spread of reconnections is added.
constexpr Duration kHeartbeatAnswerMax = std::chrono::seconds(2);

// Bounds on the time that a leaving worker waits for its coordinator to stop the ranks, before the
// worker itself stops its ranks. While connected: at most kCoordinatorAnswerMax, because an answer
// takes milliseconds. While disconnected: at most kAbsentCoordinatorWaitMax, because the connection
// may return. In both cases: at most 1/kCoordinatorWaitFraction of the grace.
constexpr int kCoordinatorWaitFraction = 4;
constexpr Duration kCoordinatorAnswerMax = std::chrono::seconds(1);
constexpr Duration kAbsentCoordinatorWaitMax = std::chrono::seconds(60);

// The default of leave_grace: the time that ranks have to write a checkpoint, and the worker to
// report it, before the worker's own supervisor kills the worker. Slurm and Kubernetes wait 30 s,
// systemd 90 s.
constexpr Duration kLeaveGrace = std::chrono::seconds(25);

// The worker's identity, resources and time limits.
struct CoreOptions {
  WorkerName name;
  Incarnation incarnation;  // also the seed of the reconnection jitter
  std::string version;
  std::string host;
  int32_t slots = 1;
  std::string rendezvous_address;
  std::vector<std::string> addresses;  // the addresses of the node
  PortRange program_ports;
  std::string switches;
  std::string domain;
  NodeLabels labels{};
  std::vector<Gpu> gpus;
  std::string no_gpus_because;  // the reason shown to users if `gpus` is empty
  size_t launches_kept_max = kLaunchesKeptMax;
  // time from the ranks' SIGTERM to their SIGKILL when the worker leaves
  Duration leave_grace = kLeaveGrace;
  // delays of reconnections: the first ones are short, so that the worker finds a restarted
  // coordinator quickly, and later ones long, so that a long absence costs little
  RetryTimes retry{};
  // time limit for the coordinator's first answer
  Duration registration_budget = std::chrono::seconds(5);
  // time limit for the acknowledgement of the last reports when the worker leaves
  Duration farewell_budget = std::chrono::seconds(1);
};

// The state machine of one worker.
class Core {
 public:
  // Creates an unconnected core. The first Tick, which is due immediately, requests a connection.
  Core(CoreOptions options, Instant now);

  // Handles one event and appends the resulting actions to `out`.
  void step(const Event& event, Instant now, ActionList& out);

  // Returns the time at which the shell must send the next Tick, or nullopt if no deadline is
  // pending.
  std::optional<Instant> next_deadline() const;

  // The states of this worker's ranks, for metrics and tests.
  enum class Life { kWaiting, kSpawning, kUp };
  struct RankState {
    std::shared_ptr<const Launch> launch;
    int32_t local_rank = 0;
    Life life = Life::kWaiting;
    int32_t pid = 0;
    RankFigures figures;
    bool dirty = true;  // the coordinator has not yet received `figures`
    // the rank has received the signal to end, or will receive it once it is up
    bool terminated = false;
    bool killed = false;             // SIGKILL was sent
    std::optional<Instant> kill_at;  // time at which the rank is killed
    // true: kill_at moves forward while the launch's saves make progress (save_progress.h)
    bool waits_for_save = false;
    Duration stop_grace{};
    SaveProgress save;  // the launch's save progress at the time when kill_at was set
    std::string stop_reason;
    // true: the rank belongs to a state store that is no longer the coordinator's, so its end is
    // not reported
    bool disowned = false;
  };
  const std::map<RankKey, RankState>& ranks() const { return ranks_; }
  const std::map<uint64_t, SendRankExited>& unacknowledged() const { return reports_; }
  bool registered() const { return link_ == Link::kRegistered; }
  int32_t slots() const { return options_.slots; }
  int32_t gpus_used() const;  // GPUs owned by ranks that run, or reserved for ranks that wait
  bool leaving() const { return leaving_; }
  // true: the core has emitted Exit and ignores all further events
  bool left() const { return left_; }

 private:
  // kDown ──retry_at_──▶ kConnecting ──Connected──▶ kGreeting ──Registered──▶ kRegistered
  //  ▲                                                                            │
  //  └────────────────── Disconnected (from any of the others) ───────────────────┘
  enum class Link { kDown, kConnecting, kGreeting, kRegistered };
  // The newest attempt of a job that a message of the coordinator has named.
  struct Seen {
    Attempt attempt{0};
    bool started = false;  // false: only StopRanks has named the attempt
    bool stopped = false;
  };

  // One dump of stacks in progress.
  struct PendingDump {
    DumpStacks request;
    // number of the next sample, or of the sample that is being read
    int32_t sample = 0;
    // time at which the next sample starts; nullopt while a sample is being read
    std::optional<Instant> read_at;
    Instant requested_at{};  // time at which the sample that is being read started
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
  void on(const PaceChanged& event, Instant now, ActionList& out);
  void on(const ReportAcked& event, Instant now, ActionList& out);
  void on(const LogSettled& event, Instant now, ActionList& out);
  void on(const LaunchesFound& event, Instant now, ActionList& out);
  void on(const RankStarted& event, Instant now, ActionList& out);
  void on(const SpawnFailed& event, Instant now, ActionList& out);
  void on(const RankReaped& event, Instant now, ActionList& out);
  void on(const PageResults& event, Instant now, ActionList& out);
  void on(const StackResults& event, Instant now, ActionList& out);
  void on(const SymbolResults& event, Instant now, ActionList& out);
  void on(const NodeCheckDone& event, Instant now, ActionList& out);
  void on(const DeepCheckDone& event, Instant now, ActionList& out);
  void on(const GpusChanged& event, Instant now, ActionList& out);
  void on(const HeartbeatAnswered& event, Instant now, ActionList& out);
  void on(const StreamUnanswered& event, Instant now, ActionList& out);
  void on(const Tick& event, Instant now, ActionList& out);
  void on(const ShutdownRequested& event, Instant now, ActionList& out);

  static bool is_due(const std::optional<Instant>& deadline, Instant now) {
    return deadline && *deadline <= now;
  }
  void begin_deep_check(ActionList& out);
  void stop_deep_check(ActionList& out);
  void forget_checks(ActionList& out);
  void yield_to_ranks(Instant now, ActionList& out);
  void spawn_beside_check(ActionList& out);
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
  void extend_for_saves(Instant now);
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
  Duration next_retry_delay(StreamEnd end);
  Duration greeting_budget() const;
  Duration connection_budget() const;
  void set_pace(Duration idle, Duration busy, Duration spread);
  double jitter();

  CoreOptions options_;
  Link link_ = Link::kDown;
  // The store of the newest registration, to which the state below belongs.
  std::optional<StoreId> store_;
  Epoch epoch_;  // epoch of store_'s coordinator
  // former stores; their jobs' local copies are removed once none of their ranks runs
  std::set<StoreId> abandoned_;
  std::optional<Instant> retry_at_;        // kDown
  std::optional<Instant> greeting_until_;  // kConnecting, kGreeting
  std::optional<Instant> heartbeat_at_;    // kRegistered
  bool is_replicated_ = false;             // Registered::is_replicated of the newest registration
  std::optional<Instant> answer_by_;       // a heartbeat waits for its answer until then
  Duration heartbeat_interval_ = std::chrono::seconds(1);
  Duration busy_interval_ = std::chrono::milliseconds(250);
  Duration spread_{};     // the time over which the fleet's workers spread their reconnections
  uint32_t retries_ = 0;  // failed connections since the last registration
  // the last connection problem that was logged since the last registration
  std::string connection_problem_;
  uint64_t draws_ = 0;  // position in the random stream of the jitter

  std::map<RankKey, RankState> ranks_;  // ranks that are not reaped yet
  std::map<JobId, Seen> seen_;
  // reports that the coordinator has not acknowledged yet, by report id
  std::map<uint64_t, SendRankExited> reports_;
  // by report id: last figures of ranks that have completed steps
  std::map<uint64_t, RankProgress> last_figures_;
  uint64_t next_report_id_ = 1;

  std::map<uint64_t, PendingDump> dumps_;  // by dump number; at most kDumpsMax
  size_t pending_addresses_ = 0;           // addresses whose symbols were requested from the shell
  std::optional<uint64_t> check_;          // the node check that the coordinator waits for
  // true while any check runs, also one that the coordinator no longer waits for
  bool check_runs_ = false;
  std::optional<CheckNode> deep_check_;  // the deep check that the coordinator waits for
  uint64_t running_deep_check_ = 0;      // 0: none; also one whose result is not awaited
  // Set while ranks wait for the end of the deep check: until then at most.
  std::optional<Instant> check_gone_by_;
  std::set<RankKey> unsettled_;  // ranks whose end is acknowledged, but whose log is not
  // Launches that have a folder, and at least one rank that still runs, or whose end or log is not
  // acknowledged.
  std::set<LaunchKey> unfinished_;
  // Launches of which only the folder remains, oldest first.
  std::deque<LaunchKey> finished_;

  // one per GPU, empty: healthy; GPUs beyond the vector's size are healthy
  std::vector<std::string> gpu_problems_;

  bool leaving_ = false;
  Instant leave_by_{};  // if leaving_: the time at which the ranks are killed
  std::optional<Instant> coordinator_deadline_;  // deadline for the coordinator to stop the ranks
  bool left_ = false;
  int exit_code_ = 0;
  std::string exit_reason_;
  std::optional<Instant> farewell_until_;
};

}  // namespace muster::worker

// The worker's decisions: a deterministic state machine without clock, I/O, threads or callbacks.
//
//   shell: events ──▶ Core::step(event, now, out) ──▶ actions, carried out in order
//
// It keeps the stream to the coordinator alive, starts and stops ranks as it is told, heartbeats
// their figures and reports each rank's end until that is acknowledged. When it is told to leave it says so at once, because its
// ranks may share a model with others, which only the coordinator can ask to leave, too: it asks all of them, and who does not hear of it for a while asks its own. Ranks run
// on undisturbed while there is no coordinator; one with another state store, where their numbers mean other jobs, has them stopped
// before this worker works for it. A refusal ends a worker that has never been registered, and no other: the coordinator
// may have been restarted as another version, and may come back. step() is total: whatever the event says, it neither fails nor
// throws; stale, repeated and contradictory requests are ignored or answered by a report with the
// reason.
//
// While it has ranks it heartbeats more often, because a hang is noticed no earlier than the news that nothing moves.
//
// Stacks are read by the shell beside everything else. A dump belongs to the stream that it was asked on: who is not connected any
// more has gone on without it. So does a check of the node.
//
// A rank's life:
//
//   kWaiting ──older attempt reaped──▶ kSpawning ──RankStarted──▶ kUp ──RankReaped──▶ report, until
//   acknowledged
//      │  StopRanks                        │  SpawnFailed                                ▲
//      └───────────────────────────────────┴─────────────────────────────────────────────┘
//
// A launch is finished when all its ranks' ends and logs are acknowledged. Of finished launches, those of earlier lives
// of the worker among them, the newest ones keep their folders.
//
// Single-threaded: the shell's one event-loop thread calls everything here.
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
#include "common/time.h"
#include "worker/core/action.h"
#include "worker/core/event.h"
#include "worker/core/rank.h"

namespace muster::worker {

// Launches that are over and whose folders stay: enough to look into what happened lately, while a worker that runs for
// months does not fill its disk with logs that the coordinator has, too.
constexpr size_t kLaunchesKeptMax = 20;

// After its grace, and SIGKILL, a worker that leaves waits so long for its ranks: a process in D state is there until the kernel lets it go.
constexpr Duration kLeaveWithout = std::chrono::seconds(5);

// So long, at most this part of its grace, a worker that leaves waits for its coordinator to stop ranks with peers elsewhere before it does so
// itself: where it is connected an answer takes milliseconds, where it is not the coordinator may be about to come back.
constexpr int kTellFraction = 4;
constexpr Duration kAnswerMax = std::chrono::seconds(1);
constexpr Duration kTellMax = std::chrono::seconds(60);

// Time to write a checkpoint, and to tell of it before whoever ends the worker kills it: Slurm and Kubernetes wait 30 s, systemd 90 s.
constexpr Duration kLeaveGrace = std::chrono::seconds(25);

struct CoreOptions {
  WorkerName name;
  Incarnation incarnation;  // also the seed of the reconnection's jitter
  std::string version;
  std::string host;
  int32_t slots = 1;
  std::string rendezvous_address;
  PortRange program_ports;
  std::string switches;
  std::vector<Gpu> gpus;
  std::string no_gpus_because;  // for people, where there are none
  size_t launches_kept_max = kLaunchesKeptMax;
  Duration leave_grace = kLeaveGrace;  // SIGTERM to SIGKILL when the worker leaves
  Duration retry_first =
      std::chrono::milliseconds(50);             // a restarted coordinator is found at once …
  Duration retry_max = std::chrono::seconds(1);  // … and a long absence costs little
  Duration registration_budget = std::chrono::seconds(5);  // for the coordinator's first answer
  Duration farewell_budget =
      std::chrono::seconds(1);  // for acknowledgements when the worker leaves
};

class Core {
 public:
  // The first Tick, due at once, asks for a connection.
  Core(CoreOptions options, Instant now);

  void step(const Event& event, Instant now, ActionList& out);

  // When the shell must send the next Tick, if anything is waiting for time to pass.
  std::optional<Instant> next_deadline() const;

  // What the worker runs, for metrics and tests.
  enum class Life { kWaiting, kSpawning, kUp };
  struct RankState {
    std::shared_ptr<const Launch> launch;
    int32_t local_rank = 0;
    Life life = Life::kWaiting;
    int32_t pid = 0;
    RankFigures figures;
    bool dirty = true;               // figures the coordinator has not been sent
    bool terminated = false;         // was asked to end, or is to be once it is up
    bool killed = false;             // SIGKILL was sent
    std::optional<Instant> kill_at;  // when that has not helped
    std::string stop_reason;
    bool disowned =
        false;  // of a state store that is no longer the coordinator's: nobody waits for its end
  };
  const std::map<RankKey, RankState>& ranks() const { return ranks_; }
  const std::map<uint64_t, SendRankExited>& unacknowledged() const { return reports_; }
  bool registered() const { return link_ == Link::kRegistered; }
  int32_t slots() const { return options_.slots; }
  int32_t gpus_used() const;  // that ranks have, or wait for
  bool leaving() const { return leaving_; }
  bool left() const { return left_; }  // Exit was asked for; every further event is ignored

 private:
  // kDown ──retry_at_──▶ kConnecting ──Connected──▶ kGreeting ──Registered──▶ kRegistered
  // ──Disconnected──▶ kDown
  enum class Link { kDown, kConnecting, kGreeting, kRegistered };
  // The newest attempt of a job that this worker has heard of.
  struct Seen {
    Attempt attempt{0};
    bool started = false;  // false: only a StopRanks named it so far
    bool stopped = false;
  };

  // One dump of stacks on its way.
  struct Dump {
    DumpStacks request;
    int32_t sample = 0;              // the next one, or the one that is being read
    std::optional<Instant> read_at;  // unless one is being read
    Instant asked{};                 // of that one
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
  std::string why_not(const Launch& launch) const;
  bool is_superseded(const RankKey& key) const;
  std::string choose_gpus(Launch& launch, ExitCause& cause) const;
  bool has_its_gpus(const Launch& launch) const;
  void remember(JobId job, const Seen& seen);
  void refuse(const Launch& launch, const std::string& reason, ExitCause cause, ActionList& out);
  void spawn_ready(ActionList& out);
  void stop(const RankKey& key, RankState& rank, Duration grace, const std::string& reason,
            Instant now, ActionList& out);
  void stop_older(JobId job, Attempt attempt, Instant now, ActionList& out);
  static bool is_told_to_end(const RankState& rank) { return rank.terminated || rank.killed; }
  int asking_signal(const RankState& rank, Instant now) const;
  void stop_all(Duration grace, const std::string& reason, Instant now, ActionList& out);
  void stop_if(absl::FunctionRef<bool(const RankState&)> is_meant, Duration grace,
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
  Instant told_at() const;
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
  std::optional<StoreId>
      store_;                    // of the newest registration; whatever is kept below belongs to it
  Epoch epoch_;                  // of that store
  std::set<StoreId> abandoned_;  // whose copies are to go when nothing of theirs runs any more
  std::optional<Instant> retry_at_;        // kDown
  std::optional<Instant> greeting_until_;  // kConnecting, kGreeting
  std::optional<Instant> heartbeat_at_;    // kRegistered
  Duration heartbeat_interval_ = std::chrono::seconds(1);
  uint32_t retries_ = 0;       // since the last registration
  std::string trouble_;        // that was told of since then
  uint64_t retries_ever_ = 0;  // position in the jitter's stream

  std::map<RankKey, RankState> ranks_;  // until reaped
  std::map<JobId, Seen> seen_;
  std::map<uint64_t, SendRankExited> reports_;     // not acknowledged yet
  std::map<uint64_t, RankProgress> last_figures_;  // of the ranks in reports_ that made steps
  uint64_t next_report_id_ = 1;

  std::map<uint64_t, Dump> dumps_;  // at most kDumpsMax
  size_t places_ = 0;               // whose names the shell has been asked for
  std::optional<uint64_t> check_;   // that the coordinator waits for
  bool check_runs_ = false;         // perhaps for one that nobody waits for any more
  std::set<RankKey> unsettled_;     // ends are acknowledged, logs are not
  std::set<LaunchKey>
      unfinished_;  // have a folder, and a rank, a report or a log that is not done with
  std::deque<LaunchKey>
      finished_;  // have a folder and nothing else, in the order in which they finished

  std::vector<std::string> gpu_problems_;  // of each GPU; shorter: the others are good

  bool leaving_ = false;
  Instant leave_by_{};                 // when the ranks are killed, once leaving_
  std::optional<Instant> tell_until_;  // the ranks are asked then, if not before
  bool left_ = false;
  int exit_code_ = 0;
  std::string exit_reason_;
  std::optional<Instant> farewell_until_;
};

}  // namespace muster::worker

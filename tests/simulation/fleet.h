// Simulates one large training of up to 16,384 ranks with one fault, against the real coordinator
// core alone. World, in contrast, simulates a few nodes with real worker cores, in thousands of
// runs. The simulation is seeded and uses simulated time.
//
// A step has four layers, which progress pages report. In each layer the ranks of a node enter a
// collective of group "tensor", and then all ranks enter a collective of group "data". Workers send
// changes in heartbeats four times a second, and send the stacks of a dump after some tens of
// milliseconds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/core/core.h"
#include "tests/simulation/scheduler.h"

namespace muster::simulation {

enum class Trouble {
  // A rank stops progressing.
  kStopped,      // SIGSTOP, outside any collective
  kStopsInside,  // SIGSTOP, inside a collective
  kLock,
  kLoop,    // computes forever
  kLoader,  // sleeps while it loads data
  kDisk,    // waits for a disk while it loads data
  kSkips,   // skips a collective
  kOtherCall,
  kTwoStopped,
  // Deaths and silences.
  kRankKilled,
  kWorkerKilled,
  kNodeCutOff,           // cut off from the coordinator and from the peers
  kNodeCutOffWithSpare,  // as kNodeCutOff, and another node is free
  kNodePaused,           // worker and ranks pause for 3 s
  // One rank computes longer.
  kSlowByHalf,
  kThriceAsSlow,
  // A rank pauses for 5 to 9 s repeatedly: the pauses are reported, and no action follows.
  kLongPauses,
  // Harmless disturbances, which leave no incident.
  kWorkerPaused,  // the worker pauses, and its ranks continue
  kWorkerCutOff,  // as kWorkerPaused, and its messages arrive only after the end
  kLateHeartbeats,
  kLostHeartbeats,
  kClockJumps,
  kCompiles,
  kEvaluates,
  kSaves,  // one rank saves for a minute
  // ranks, nodes and workers pause repeatedly, as on a busy machine
  kShortPauses,
  // a node is silent for 1 to 2.2 s, while its job stands still and another node is free
  kLinkLost,
  kPairCut,  // two nodes cannot reach each other, and another node is free
};
constexpr std::array<std::string_view, 28> kTroubleNames = {"stopped",
                                                            "stopped inside",
                                                            "lock",
                                                            "busy loop",
                                                            "data loader",
                                                            "disk",
                                                            "skipped",
                                                            "other call",
                                                            "two stopped",
                                                            "rank killed",
                                                            "worker killed",
                                                            "node cut off",
                                                            "node cut off with a spare",
                                                            "node paused",
                                                            "slow by half",
                                                            "thrice as slow",
                                                            "long pauses",
                                                            "worker paused",
                                                            "worker cut off",
                                                            "late heartbeats",
                                                            "lost heartbeats",
                                                            "clock jumps",
                                                            "compiles",
                                                            "evaluates",
                                                            "saves",
                                                            "short pauses",
                                                            "link lost",
                                                            "pair cut"};

enum class Expected { kHang, kEnd, kSlow, kPassing, kNothing };
Expected expected_of(Trouble trouble);

struct FleetResult {
  bool reported = false;  // an incident was opened after the fault began
  bool right = false;     // the incident has the expected kind and names the culprit
  int false_alarms = 0;   // incidents without a cause
  int ended = 0;          // attempts that were ended although nothing was wrong
  // time from the begin of the fault to its report: in the job's reason for a silent node,
  // otherwise as an incident
  Duration latency{};
  Duration bound{};  // upper bound of the latency; zero: none
  // time from the begin of the fault to the end of the attempt, if the attempt is expected to end
  Duration stopped{};
  Duration stop_bound{};  // upper bound of `stopped`; zero: none
  bool moved = true;      // for a cut pair: the next attempt uses only one of the two nodes
  std::string sentence;
};

class Fleet {
 public:
  Fleet(int32_t ranks, Trouble trouble, uint64_t seed);

  FleetResult run();

 private:
  static constexpr int64_t kLayers = 4;
  static constexpr Duration kTick = std::chrono::milliseconds(25);

  struct Node {
    Instant silent_until{};  // the node sends nothing before this time
    int64_t reported = -1;   // newest mark that the node reported
    Duration offset{};       // offset of the node's heartbeats in their interval
  };
  struct Report {
    int32_t node = 0;
    coordinator::SendDumpStacks dump;
    int32_t sample = 0;
  };

  void register_workers();
  void submit();
  void tick();
  void train();
  void begin_step();
  void enter(Phase phase, bool all);
  void pause_some();
  void begin_trouble();
  void heartbeat(int32_t node);
  void send(Duration delay, const coordinator::Event& event);
  void report(const Report& report);
  RankEvidence evidence_of(int32_t rank) const;
  ThreadStack stack_of(int32_t rank) const;
  void step(coordinator::Event event);
  void judge(const coordinator::Incident& incident);
  // The ranks of a cut pair have entered the collective, as all others.
  bool is_culprit(int32_t rank) const {
    return broken_ && trouble_ != Trouble::kPairCut && culprits_.contains(rank);
  }
  // Returns how often the kernel of the node has repeated a segment; zero if it reports nothing.
  int32_t repetitions(int32_t node) const;
  std::string pair_text() const;
  void end_ranks(int32_t node, const coordinator::SendStopRanks& order);
  int32_t node_of(int32_t rank) const { return rank / ranks_per_node_; }
  bool pauses_again() const {
    return trouble_ == Trouble::kShortPauses || trouble_ == Trouble::kLongPauses;
  }
  Phase phase_of(int32_t rank) const { return all_in_phase_ || rank == 0 ? phase_ : Phase::kStep; }
  const coordinator::Job& job() const { return core_.jobs().at(JobId(1)); }

  bool has_spare() const {
    return trouble_ == Trouble::kNodeCutOffWithSpare || trouble_ == Trouble::kLinkLost ||
           trouble_ == Trouble::kPairCut;
  }
  bool is_cut_off() const {
    return trouble_ == Trouble::kNodeCutOff || trouble_ == Trouble::kNodeCutOffWithSpare;
  }
  bool is_stopped() const { return is_cut_off() || trouble_ == Trouble::kPairCut; }

  const int32_t ranks_, ranks_per_node_, nodes_;
  const Trouble trouble_;
  Random random_;
  const Duration step_time_;
  Instant now_ = instant_from_ns(1'000'000'000);
  int64_t unix_ns_ = 1'700'000'000'000'000'000;
  std::vector<Node> nodes_state_;
  std::multimap<Instant, coordinator::Event> on_the_way_;
  // arrival time of each node's newest message, because a stream preserves the order
  std::map<int32_t, Instant> newest_of_;
  std::multimap<Instant, Report> reports_;

  // The training.
  int64_t marks_ = 0;  // layers completed
  Instant next_mark_{};
  Instant last_mark_{};
  Duration layer_time_{};
  struct Times {
    double seconds = 0;
    double waited = 0;
    double waited_slow = 0;  // time waited by the slow rank
  };
  Times completed_;  // times of all completed steps
  Times newest_;     // times of the current step
  double last_step_seconds_ = 0;
  Phase phase_ = Phase::kStep;  // phase of rank 0 or of all ranks
  Instant phase_start_{};
  Instant phase_ends_{};
  bool all_in_phase_ = false;

  // The fault.
  int64_t first_mark_ = 0;  // mark after which the fault begins
  bool began_ = false;
  bool broken_ = false;  // no rank completes a collective any more
  Instant began_at_{};
  std::set<int32_t> culprits_;
  bool before_tensor_ = false;  // the culprit broke before its node's collective, not after it
  double slow_factor_ = 1;
  Instant stands_until_{};  // end of the pause of all ranks
  Instant pauses_until_{};  // end of the pause of any rank
  // time at which the culprit's node was reported unreachable
  std::optional<Instant> reported_at_;
  int32_t paused_rank_ = -1;

  std::map<coordinator::IncidentId, coordinator::Incident> incidents_;  // current versions
  FleetResult result_;
  coordinator::Core core_;
};

}  // namespace muster::simulation

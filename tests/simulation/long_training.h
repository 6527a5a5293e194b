// Simulates one training of up to 16,384 ranks over weeks, with faults at the rates of the Llama 3
// report, against the real coordinator core, and measures the account of its time. fleet.h tests
// the detection of one fault; this simulation measures the cost of all faults.
//
// Around each fault, time advances in ticks of 25 ms, and each worker sends heartbeats four times a
// second. Between faults, while the core has nothing to decide, time is skipped: the training
// continues without reports to the coordinator. The core treats the gap as a pause of its own
// machine and excuses the workers (own_stall() in core.cc). Its ledger covers all of the time, and
// the trainers' pages report the progress.
//
// These times are skipped:
//   training        from 8 s after an event until 8 s before the next one; while the job may soon
//                   grow, at most 10 s at once
//   loading         all except the last second
//   in the queue    3 s at once, so a start may be up to 3 s late
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/core/core.h"
#include "tests/simulation/scheduler.h"

namespace muster::simulation {

// The effect of an interruption on the cluster.
enum class Interruption {
  kRankEnds,  // a process ends; its node is healthy
  // as kRankEnds, and the node's own check takes the node out of service
  kDeviceFails,
  kNodeDies,
  kNodeCutOff,  // the node is cut off from all others; its peers wait in a collective
  // a rank blocks a collective forever; its node is healthy
  kHang,
  // the node is drained, with time for a checkpoint
  kPlanned,
};

struct InterruptionRow {
  std::string_view name;  // the report's name
  int32_t count = 0;      // number in 54 days of 16,384 GPUs
  Interruption what = Interruption::kRankEnds;
  Duration repair{};  // mean time until the node can be used again
};

// The Llama 3 Herd of Models (arXiv 2407.21783), table 5, and 47 planned interruptions of section
// 3.3.4. The effect of each interruption and the duration of repairs are not in the report;
// docs/goodput.md explains the values.
constexpr auto kHours = [](double hours) { return Duration(static_cast<int64_t>(hours * 3600e9)); };
constexpr std::array<InterruptionRow, 20> kInterruptions = {{
    {"faulty GPU", 148, Interruption::kDeviceFails, kHours(24)},
    {"GPU HBM3 memory", 72, Interruption::kDeviceFails, kHours(24)},
    {"software bug", 54, Interruption::kRankEnds, {}},
    {"network switch or cable, link lost", 18, Interruption::kNodeCutOff, kHours(4)},
    {"network switch or cable, traffic stuck", 17, Interruption::kHang, {}},
    {"unplanned host maintenance", 32, Interruption::kNodeDies, kHours(2)},
    {"GPU SRAM memory", 19, Interruption::kDeviceFails, kHours(24)},
    {"GPU system processor", 17, Interruption::kHang, {}},
    {"NIC", 7, Interruption::kNodeCutOff, kHours(24)},
    {"NCCL watchdog timeout", 7, Interruption::kHang, {}},
    {"silent data corruption", 6, Interruption::kDeviceFails, kHours(24)},
    {"GPU thermal interface and sensor", 6, Interruption::kDeviceFails, kHours(24)},
    {"SSD", 3, Interruption::kNodeDies, kHours(24)},
    {"power supply", 3, Interruption::kNodeCutOff, kHours(24)},
    {"server chassis", 2, Interruption::kNodeCutOff, kHours(48)},
    {"IO expansion board", 2, Interruption::kNodeCutOff, kHours(48)},
    {"dependency", 2, Interruption::kRankEnds, {}},
    {"CPU", 2, Interruption::kNodeCutOff, kHours(48)},
    {"system memory", 2, Interruption::kNodeCutOff, kHours(24)},
    {"planned", 47, Interruption::kPlanned, kHours(1)},
}};
constexpr int32_t kReportGpus = 16'384;
constexpr double kReportDays = 54;

struct LongPlan {
  int32_t nodes = 2'048;
  int32_t ranks_per_node = 8;
  int32_t spares = 32;  // additional idle nodes of the same kind
  // Smaller numbers of nodes on which the job may continue, in order; steps are longer then,
  // because the batch stays the same.
  std::vector<int32_t> smaller_sizes = {};
  double days = kReportDays;
  double rate = 1;                                            // factor on the report's rate per GPU
  Duration step_time = std::chrono::milliseconds(6'200);      // duration of a step on all nodes
  int64_t checkpoint_every = 25;                              // steps
  Duration save_stall = std::chrono::milliseconds(500);       // training time lost per checkpoint
  Duration save_time = std::chrono::seconds(15);              // time until a checkpoint is complete
  Duration process_start = std::chrono::milliseconds(2'500);  // time until a process has a page
  Duration load = std::chrono::seconds(60);             // libraries, rendezvous, restore, compile
  Duration stop_time = std::chrono::milliseconds(300);  // until a killed process is reaped
  // Nodes that become slow, by a factor and for a time.
  double slow_nodes_per_day = 0;
  double slow_factor = 1.3;
  Duration slow_time = kHours(6);
  coordinator::SlowNodePolicy slow_nodes = coordinator::SlowNodePolicy::kReplace;
};

struct LongResult {
  coordinator::LossTable table;
  coordinator::JobState state{};
  std::string reason;
  int64_t steps = 0;
  // true duration of the steps completed for the first time
  Duration productive{};
  Duration on_fewer_nodes{};  // the part of `productive` on fewer nodes than LongPlan::nodes
  // the part of `on_fewer_nodes` during which enough nodes were healthy for a larger size
  Duration on_fewer_than_possible{};
  std::map<std::string, int32_t> interruptions;  // interruptions that affected the job, by name
  std::vector<coordinator::Incident> incidents;  // the incidents of all faults of the job
  int32_t attempts = 0;
  Duration lost_to_slow_nodes{};  // the part of `productive` in which nodes waited for slow ones
  int32_t slow_nodes_found = 0;
  int32_t slow_nodes_mistaken = 0;  // found nodes that were not slow
  Duration longest_without_a_step{};
  std::string waited_for;  // the job's last reason in the queue
};

class LongTraining {
 public:
  LongTraining(const LongPlan& plan, uint64_t seed);

  LongResult run();

 private:
  static constexpr int64_t kLayers = 4;  // layers of a step, which pages report
  static constexpr Duration kTick = std::chrono::milliseconds(25);
  static constexpr int64_t kTicksPerHeartbeat = 10;
  static constexpr std::string_view kNodePrefix = "node";

  struct Node {
    bool in_service = true;
    uint64_t incarnation = 1;
    bool silent = false;      // the node is cut off
    int32_t bad_device = -1;  // local rank with a bad device; -1: none
    int64_t reported = -1;    // newest mark that the node reported
    int32_t first_rank = -1;  // first rank of the current attempt on the node; -1: none
    std::set<int32_t> ended;  // ranks of the attempt that have ended or were stopped
    double slowness = 1;      // factor on the time for which its ranks compute
    double excess = 0;  // seconds that its ranks computed longer than the usual share of a step
  };
  enum class Life { kNone, kStarting, kLoading, kTraining };

  // Implemented in long_training.cc.
  Instant end() const;
  void tick();
  void skip(Duration time);
  Duration idle_time() const;
  int32_t nodes_possible() const;
  void train();
  void complete_step();
  void begin_step(Instant when);
  void heartbeat(int32_t node);
  void step(coordinator::Event event);
  void after(Duration delay, coordinator::Event event);
  void check_incident(const coordinator::Incident& incident);
  void carry_out(const WorkerName& name, const coordinator::WorkerPayload& payload);
  void begin_attempt(const coordinator::SendStartRanks& order);
  void end_ranks(int32_t node, const coordinator::SendStopRanks& order);
  const coordinator::Job& job() const { return core_.jobs().at(JobId(1)); }

  // Implemented in long_faults.cc.
  void plan_interruption();
  void interrupt();
  void strike(const InterruptionRow& row, int32_t node);
  void take_out(int32_t node, Duration repair, Duration time);
  Duration time_to_repair(const InterruptionRow& row);
  void fail_bad_devices();
  void service_devices();
  void plan_slow_node();
  void change_slow_nodes();
  void find_slowest();
  double work_of(const Node& node) const;
  void break_training();
  void watch_closely();
  void bring_back(int32_t node);
  void register_node(int32_t node);
  void report(int32_t node, const coordinator::SendDumpStacks& dump, int32_t sample);
  coordinator::RankExited exit_of(int32_t node, int32_t rank) const;
  static WorkerName name_of(int32_t node);
  static int32_t index_of(const WorkerName& name);

  const LongPlan plan_;
  const int32_t ranks_;
  Random random_;
  Instant now_ = instant_from_ns(1'000'000'000);
  int64_t unix_ns_ = 1'700'000'000'000'000'000;
  const Instant began_ = now_;
  int64_t ticks_ = 0;
  int64_t skipped_at_ = 0;
  std::vector<Node> nodes_;
  std::multimap<Instant, coordinator::Event> on_the_way_;
  std::multimap<Instant, int32_t> leaving_;  // nodes that leave the service at this time
  std::multimap<Instant, int32_t> repairs_;  // nodes that return to the service at this time
  // The times at which nodes with a bad device are serviced, and the time of the next use of such a
  // device.
  std::multimap<Instant, int32_t> services_;
  std::optional<Instant> bad_devices_fail_;
  struct Report {
    int32_t node = 0;
    coordinator::SendDumpStacks dump;
    int32_t sample = 0;
  };
  std::multimap<Instant, Report> reports_;
  Instant next_interruption_{};
  Instant next_slow_node_ = Instant::max();
  std::multimap<Instant, int32_t> slow_until_;
  std::set<coordinator::IncidentId> slow_incidents_;
  Instant quiet_from_{};  // no event that needs ticks occurs before this time

  // The training.
  Life life_ = Life::kNone;
  bool broken_ = false;  // no rank progresses
  Attempt attempt_{0};
  int64_t news_ = 0;  // number of changes of pages
  Instant up_{}, loaded_{};
  Duration step_time_{};    // duration of the attempt's steps
  std::string waited_for_;  // the job's reason in the queue since the newest step
  int64_t base_ = 0, made_ = 0, marks_ = 0;
  Instant next_mark_{}, last_mark_{}, phase_start_{};
  Duration layer_time_{};
  double slowest_ = 1;     // greatest slowness of the attempt's nodes
  Duration usual_time_{};  // duration of the present step without slow nodes
  // Sums over the attempt's steps; usual_seconds_: without slow nodes.
  double seconds_ = 0, usual_seconds_ = 0, stall_seconds_ = 0;
  // Steps in the newest complete checkpoint, and in the checkpoint being written.
  int64_t saved_ = 0, saving_ = 0;
  Instant saving_until_{};
  int64_t highest_ = 0;
  Instant newest_step_{};
  int32_t culprit_ = -1;  // rank that blocks the others; -1: none

  std::map<coordinator::IncidentId, coordinator::Incident> incidents_;
  LongResult result_;
  coordinator::Core core_;
};

}  // namespace muster::simulation

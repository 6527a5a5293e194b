// One job of 16,384 ranks on 2,048 workers, of which one rank hangs: the coordinator's core has to find it in the same time as among eight,
// and may not need a machine of its own for it.
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <deque>
#include <iostream>
#include <map>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {
namespace {

constexpr int32_t kNodes = 2'048;
constexpr int32_t kRanksPerNode = 8;
constexpr int32_t kRanks = kNodes * kRanksPerNode;
constexpr int32_t kCulprit = 9'999;
constexpr Duration kTurn = std::chrono::milliseconds(50);
constexpr int32_t kTurnsPerHeartbeat = 5;
constexpr Duration kStep = std::chrono::milliseconds(500);
constexpr int64_t kHangStep = 12;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

WorkerName name_of(int32_t node) { return WorkerName(absl::StrCat("node", node)); }

class Fleet {
 public:
  Fleet() : core_(options(), DurableState{}, now_) {}

  void start() {
    for (int32_t node = 0; node < kNodes; ++node) {
      WorkerRegistered event;
      event.worker = name_of(node);
      event.incarnation = Incarnation(1);
      event.version = "scale";
      event.host = event.worker.value();
      event.slots = kRanksPerNode;
      event.rendezvous_address = "h:1";
      event.unix_ns = 1;
      step(event);
    }
    JobSpec spec;
    spec.name = "large";
    spec.nodes = kNodes;
    spec.ranks_per_node = kRanksPerNode;
    spec.output_directory = "/out";
    step(JobSubmitted{RequestToken(1), "", spec, 1});
    ASSERT_EQ(job().state, JobState::kStarting);
  }

  // One turn of all workers; then what the core wants at this time.
  void turn() {
    now_ += kTurn;
    ++turns_;
    const auto steps = static_cast<int64_t>(now_.time_since_epoch() / kStep);
    if (steps <= kHangStep && steps > step_) {
      step_ = steps;
      progress_ = now_;
    }
    for (int32_t node = 0; node < kNodes; ++node) {
      if ((turns_ + node) % kTurnsPerHeartbeat == 0) heartbeat(node);
    }
    while (!reports_.empty() && reports_.begin()->first <= now_) {
      const auto [node, dump, sample] = reports_.begin()->second;
      reports_.erase(reports_.begin());
      report(node, dump, sample);
    }
    const auto deadline = core_.next_deadline();
    if (deadline && *deadline <= now_) step(Tick{1});
  }

  const Job& job() const { return core_.jobs().at(JobId(1)); }
  Instant now() const { return now_; }
  Instant hung_at() const { return progress_; }
  int64_t steps() const { return step_; }
  const std::vector<Incident>& incidents() const { return incidents_; }

 private:
  static CoreOptions options() {
    CoreOptions options;
    options.version = "scale";
    return options;
  }

  void heartbeat(int32_t node) {
    HeartbeatReceived event;
    event.worker = name_of(node);
    event.incarnation = Incarnation(1);
    event.unix_ns = 1;
    if (std::exchange(told_[node], step_) != step_) {
      for (int32_t local = 0; local < kRanksPerNode; ++local) {
        RankProgress& rank = event.ranks.emplace_back();
        rank.job = JobId(1);
        rank.attempt = Attempt(1);
        rank.rank = Rank(node * kRanksPerNode + local);
        rank.phase = Phase::kStep;
        rank.phase_age = now_ - progress_;
        rank.last_progress_age = now_ - progress_;
        rank.step = step_;
        rank.step_seconds = to_seconds(kStep);
        rank.step_times.counts[6] = static_cast<uint64_t>(step_);
        rank.step_times.seconds = to_seconds(kStep) * static_cast<double>(step_);
        rank.collective_wait_seconds = 0.25 * rank.step_times.seconds;
      }
    }
    step(event);
  }

  void report(int32_t node, const SendDumpStacks& dump, int32_t sample) {
    StackReportReceived event;
    event.worker = name_of(node);
    event.incarnation = Incarnation(1);
    event.dump = dump.dump;
    event.job = dump.job;
    event.attempt = dump.attempt;
    event.sample = sample;
    event.unix_ns = 1;
    StackSample stacks;
    stacks.modules.push_back({"abcdef", "/usr/bin/muster-trainer"});
    for (const Rank rank : dump.ranks) {
      const bool late = rank == Rank(kCulprit);
      RankEvidence& evidence = event.ranks.emplace_back();
      evidence.rank = rank.value();
      evidence.phase = Phase::kStep;
      evidence.step = step_;
      evidence.process_state = 'S';
      evidence.groups.push_back(group("fsdp", kRanksPerNode, node, 400, false));
      evidence.groups.push_back(group("data", kRanks, 0, 40, !late));
      RankStacks& read = stacks.ranks.emplace_back();
      read.rank = rank.value();
      ThreadStack& thread = read.threads.emplace_back();
      thread.name = "main";
      for (const uint64_t address : {0x10, 0x20, late ? 0x35 : 0x30, late ? 0x45 : 0x40})
        thread.frames.push_back({0, address, ""});
    }
    event.stacks.add(stacks);
    step(event);
  }

  static GroupEvidence group(const char* name, int32_t members, int32_t id, uint64_t completed,
                             bool waits) {
    GroupEvidence group;
    group.name = name;
    group.members = static_cast<uint32_t>(members);
    group.id = static_cast<uint32_t>(id);
    group.completed = completed;
    group.enqueued = group.started = completed + (waits ? 1 : 0);
    group.kind = CollectiveKind::kAllReduce;
    group.collective = "grads";
    return group;
  }

  void step(const Event& event) {
    ActionList actions;
    core_.step(event, now_, actions);
    for (const Action& action : actions) {
      if (const auto* incident = std::get_if<PersistIncident>(&action))
        incidents_.push_back(incident->incident);
      const auto* send = std::get_if<SendToWorker>(&action);
      const auto* dump = send == nullptr ? nullptr : std::get_if<SendDumpStacks>(&send->payload);
      if (dump == nullptr) continue;
      const auto node = static_cast<int32_t>(dump->ranks.front().value() / kRanksPerNode);
      for (int32_t sample = 0; sample < dump->samples; ++sample) {
        reports_.emplace(now_ + sample * dump->apart + std::chrono::milliseconds(50 + node % 100),
                         std::tuple(node, *dump, sample));
      }
    }
  }

  Instant now_ = instant_from_ns(0);
  int32_t turns_ = 0;
  int64_t step_ = 0;
  Instant progress_{};
  std::map<int32_t, int64_t> told_;
  std::multimap<Instant, std::tuple<int32_t, SendDumpStacks, int32_t>> reports_;
  std::vector<Incident> incidents_;
  Core core_;
};

TEST(Scale, OneHungRankOf16384IsFoundAndNamed) {
  const double before = cpu_seconds();
  Fleet fleet;
  fleet.start();
  while (fleet.steps() < kHangStep) {
    fleet.turn();
    ASSERT_TRUE(fleet.incidents().empty()) << fleet.incidents().front().sentence;
  }
  const double running = cpu_seconds();
  while (fleet.incidents().empty() && fleet.now() - fleet.hung_at() < std::chrono::seconds(20))
    fleet.turn();
  const double verdict = cpu_seconds();
  ASSERT_FALSE(fleet.incidents().empty()) << fleet.job().reason;
  const Incident& incident = fleet.incidents().front();
  std::cout << incident.sentence << "\n"
            << to_seconds(fleet.now() - fleet.hung_at()) << " s after the last progress; "
            << running - before << " s of processor time for " << kHangStep << " steps, "
            << verdict - running << " s from the hang to the verdict\n";
  EXPECT_EQ(incident.kind, IncidentKind::kHang);
  ASSERT_FALSE(incident.suspects.empty());
  EXPECT_EQ(incident.suspects.front().rank, Rank(kCulprit));
  EXPECT_EQ(incident.suspects.front().worker, name_of(kCulprit / kRanksPerNode));
  EXPECT_LE(fleet.now() - fleet.hung_at(), 3 * kStep + std::chrono::seconds(3));
}

}  // namespace
}  // namespace muster::coordinator

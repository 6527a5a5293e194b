// Interruptions of the long training, and the workers' reports about them.
#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "tests/simulation/long_training.h"

namespace muster::simulation {
namespace {

using namespace coordinator;  // NOLINT: this file is about its types
using std::chrono::seconds;

constexpr Duration kLeaveGrace = seconds(25);  // as muster-worker's
constexpr Duration kServiceTime = std::chrono::minutes(10);
constexpr int32_t kPeersReportingMax = 4;  // more would add no information

}  // namespace

WorkerName LongTraining::name_of(int32_t node) {
  return WorkerName(absl::StrCat(av(kNodePrefix), node));
}

int32_t LongTraining::index_of(const WorkerName& name) {
  return std::stoi(name.value().substr(kNodePrefix.size()));
}

void LongTraining::watch_closely() { quiet_from_ = now_ + seconds(8); }

// Stops all progress. A checkpoint in progress is complete if its write ends before.
void LongTraining::break_training() {
  if (std::exchange(broken_, true)) return;
  if (saving_until_ <= now_) saved_ = std::max(saved_, saving_);
}

// Draws the time of the next interruption from an exponential distribution, because failures are
// memoryless.
void LongTraining::plan_interruption() {
  double count = 0;
  for (const InterruptionRow& row : kInterruptions) count += row.count;
  const double days =
      kReportDays / (count * plan_.rate) * static_cast<double>(kReportGpus) / ranks_;
  const double uniform = (static_cast<double>(random_.below(1 << 30)) + 1) / (1 << 30);
  next_interruption_ = now_ + Duration(std::llround(-std::log(uniform) * days * 86'400e9));
}

void LongTraining::plan_slow_node() {
  const double uniform = (static_cast<double>(random_.below(1 << 30)) + 1) / (1 << 30);
  next_slow_node_ =
      now_ + Duration(std::llround(-std::log(uniform) / plan_.slow_nodes_per_day * 86'400e9));
}

// Begins and ends the times for which nodes are slow.
void LongTraining::change_slow_nodes() {
  bool changes = false;
  while (!slow_until_.empty() && slow_until_.begin()->first <= now_) {
    nodes_[static_cast<size_t>(slow_until_.extract(slow_until_.begin()).mapped())].slowness = 1;
    changes = true;
  }
  if (next_slow_node_ <= now_) {
    plan_slow_node();
    const auto index = static_cast<int32_t>(random_.below(nodes_.size()));
    Node& node = nodes_[static_cast<size_t>(index)];
    if (node.slowness <= 1) {
      node.slowness = plan_.slow_factor;
      slow_until_.emplace(now_ + plan_.slow_time, index);
      changes = true;
    }
  }
  if (changes) find_slowest();
}

void LongTraining::find_slowest() {
  slowest_ = 1;
  for (const Node& node : nodes_)
    if (node.first_rank >= 0) slowest_ = std::max(slowest_, node.slowness * work_of(node));
}

// Returns the work of a rank on the node: the last ranks are those of a pipeline stage with more.
double LongTraining::work_of(const Node& node) const {
  return node.first_rank + plan_.ranks_per_node < ranks_ ? 0.95 : 1;
}

void LongTraining::interrupt() {
  plan_interruption();
  int32_t all = 0;
  for (const InterruptionRow& row : kInterruptions) all += row.count;
  auto drawn = static_cast<int32_t>(random_.below(static_cast<uint64_t>(all)));
  const InterruptionRow* row = kInterruptions.data();
  while (drawn >= row->count) drawn -= (row++)->count;
  const auto node = static_cast<int32_t>(random_.below(nodes_.size()));
  if (!nodes_[static_cast<size_t>(node)].in_service) return;
  watch_closely();
  strike(*row, node);
}

RankExited LongTraining::exit_of(int32_t node, int32_t rank) const {
  RankExited event;
  event.worker = name_of(node);
  event.incarnation = Incarnation(nodes_[static_cast<size_t>(node)].incarnation);
  event.job = JobId(1);
  event.attempt = attempt_;
  event.rank = Rank(rank);
  event.last_step = life_ == Life::kTraining ? base_ + made_ : -1;
  return event;
}

void LongTraining::strike(const InterruptionRow& row, int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  const bool has_ranks = life_ != Life::kNone && !broken_ && node.first_rank >= 0;
  const int32_t rank =
      node.first_rank +
      static_cast<int32_t>(random_.below(static_cast<uint64_t>(plan_.ranks_per_node)));
  const bool needs_ranks = row.what == Interruption::kRankEnds || row.what == Interruption::kHang;
  if (needs_ranks && !has_ranks) return;
  if (has_ranks) ++result_.interruptions[std::string(row.name)];
  switch (row.what) {
    case Interruption::kRankEnds:
    case Interruption::kDeviceFails:
      if (has_ranks) {
        RankExited event = exit_of(index, rank);
        event.exit_code = -1;
        event.signal = 6;
        break_training();
        node.ended.insert(rank);
        after(random_.between_ms(20, 80), event);
      }
      if (row.what == Interruption::kDeviceFails) {
        node.bad_device = has_ranks ? rank - node.first_rank : 0;
        services_.emplace(now_ + time_to_repair(row), index);
      }
      return;
    case Interruption::kNodeDies:
      take_out(index, time_to_repair(row), Duration::zero());
      if (!has_ranks) return;
      break_training();
      // Peers whose connections to the node are reset report its loss.
      for (int32_t other = 0, reported = 0;
           other < std::ssize(nodes_) && reported < kPeersReportingMax; ++other) {
        Node& peer = nodes_[static_cast<size_t>(other)];
        if (other == index || peer.first_rank < 0 || !peer.in_service) continue;
        RankExited event = exit_of(other, peer.first_rank);
        peer.ended.insert(peer.first_rank);
        event.exit_code = 76;
        after(random_.between_ms(60, 300), event);
        ++reported;
      }
      return;
    case Interruption::kNodeCutOff:
      if (has_ranks) break_training();
      node.silent = true;
      take_out(index, time_to_repair(row), Duration::max());
      return;
    case Interruption::kHang:
      culprit_ = rank;
      return break_training();
    case Interruption::kPlanned:
      after(Duration::zero(),
            WorkerLeaving{name_of(index), Incarnation(node.incarnation), kLeaveGrace});
      take_out(index, time_to_repair(row), kLeaveGrace);
      return;
  }
}

// Takes the node out of service. Its stream ends after `time`; with an infinite time the node is
// silent without an end of its stream.
void LongTraining::take_out(int32_t index, Duration repair, Duration time) {
  const Node& node = nodes_[static_cast<size_t>(index)];
  if (time != Duration::max())
    after(time, WorkerDisconnected{name_of(index), Incarnation(node.incarnation), 0});
  repairs_.emplace(now_ + repair, index);
  leaving_.emplace(now_ + (time == Duration::max() ? Duration::zero() : time), index);
}

// Draws the time of a repair from an exponential distribution. A repair begins only after the
// failure is detected.
Duration LongTraining::time_to_repair(const InterruptionRow& row) {
  const double uniform = (static_cast<double>(random_.below(1 << 30)) + 1) / (1 << 30);
  const Duration drawn(std::llround(-std::log(uniform) * static_cast<double>(row.repair.count())));
  return std::max<Duration>(drawn, seconds(120));
}

// Ends the ranks on bad devices as soon as they use these devices.
void LongTraining::fail_bad_devices() {
  bad_devices_fail_.reset();
  for (int32_t index = 0; index < std::ssize(nodes_); ++index) {
    Node& node = nodes_[static_cast<size_t>(index)];
    const bool is_there = node.in_service && !node.silent && node.first_rank >= 0;
    if (!is_there || node.bad_device < 0) continue;
    const int32_t rank = node.first_rank + node.bad_device;
    if (!node.ended.insert(rank).second) continue;
    RankExited event = exit_of(index, rank);
    event.exit_code = 1;
    break_training();
    after(random_.between_ms(0, 500), event);
  }
}

// Takes nodes with a bad device out of service; they return healthy.
void LongTraining::service_devices() {
  while (!services_.empty() && services_.begin()->first <= now_) {
    const int32_t index = services_.extract(services_.begin()).mapped();
    const Node& node = nodes_[static_cast<size_t>(index)];
    if (!node.in_service || node.silent || node.bad_device < 0) continue;
    after(Duration::zero(),
          WorkerLeaving{name_of(index), Incarnation(node.incarnation), kLeaveGrace});
    take_out(index, kServiceTime, kLeaveGrace);
    watch_closely();
  }
}

void LongTraining::bring_back(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  node.silent = false;
  node.bad_device = -1;
  node.in_service = true;
  node.first_rank = -1;
  ++node.incarnation;
  register_node(index);
  quiet_from_ = std::max(quiet_from_, now_ + seconds(1));
}

void LongTraining::register_node(int32_t index) {
  WorkerRegistered event;
  event.worker = name_of(index);
  event.incarnation = Incarnation(nodes_[static_cast<size_t>(index)].incarnation);
  event.version = "long";
  event.host = event.worker.value();
  event.slots = plan_.ranks_per_node;
  event.place = {absl::StrCat("spine.leaf", index / 36), absl::StrCat("rack", index / 18)};
  event.rendezvous_address = "h:1";
  step(event);
}

void LongTraining::report(int32_t index, const SendDumpStacks& dump, int32_t sample) {
  const Node& node = nodes_[static_cast<size_t>(index)];
  if (!node.in_service || node.silent) return;
  StackReportReceived event;
  event.worker = name_of(index);
  event.incarnation = Incarnation(node.incarnation);
  event.dump = dump.dump;
  event.job = dump.job;
  event.attempt = dump.attempt;
  event.sample = sample;
  StackSample stacks;
  stacks.modules.push_back({"abcdef", "/usr/bin/python3"});
  for (const Rank rank : dump.ranks) {
    const bool stands = rank.value() == culprit_;
    RankEvidence& evidence = event.ranks.emplace_back();
    evidence.rank = rank.value();
    evidence.pid = 1'000 + rank.value();
    evidence.phase = life_ == Life::kTraining ? Phase::kStep : Phase::kLoad;
    evidence.phase_age = now_ - phase_start_;
    evidence.step = life_ == Life::kTraining ? base_ + made_ : -1;
    evidence.process_state = 'S';
    GroupEvidence& group = evidence.groups.emplace_back();
    group.name = "data";
    group.members = static_cast<uint32_t>(job().placement.size());
    group.completed = static_cast<uint64_t>(marks_);
    group.enqueued = group.started = group.completed + (stands ? 0 : 1);
    group.kind = CollectiveKind::kAllReduce;
    group.bytes = 4096;
    group.collective = "data sum";
    RankStacks& read = stacks.ranks.emplace_back();
    read.rank = rank.value();
    ThreadStack& main = read.threads.emplace_back();
    main.name = "main";
    for (const uint64_t address : {0x10, 0x20, stands ? 0x50 : 0x30})
      main.frames.push_back({0, address, ""});
  }
  event.stacks.add(stacks);
  step(event);
}

}  // namespace muster::simulation

// The simulated ranks' evidence in dumps (pages, process states and stacks), and the judgement of
// the reported incidents.
#include <string>

#include <absl/strings/str_cat.h>

#include "tests/simulation/fleet.h"

namespace muster::simulation {
namespace {

// The time after which the kernel has repeated a segment three times.
constexpr Duration kFirstRepetition = std::chrono::milliseconds(200);
constexpr int32_t kRepetitionsReported = 3;

GroupEvidence group(const char* name, int32_t members, int32_t id, int64_t completed, bool waits) {
  GroupEvidence group;
  group.name = name;
  group.members = static_cast<uint32_t>(members);
  group.id = static_cast<uint32_t>(id);
  group.completed = static_cast<uint64_t>(completed);
  group.enqueued = group.started = group.completed + (waits ? 1 : 0);
  group.kind = CollectiveKind::kAllReduce;
  group.bytes = 4096;
  group.collective = std::string(name) + " sum";
  return group;
}

WorkerName name_of_node(int32_t node) { return WorkerName(absl::StrCat("node", node)); }

}  // namespace

// Returns the rank's evidence: its progress in its node's collectives and in the collectives of all
// ranks.
RankEvidence Fleet::evidence_of(int32_t rank) const {
  RankEvidence evidence;
  evidence.rank = rank;
  evidence.pid = 1'000 + rank;
  evidence.phase = phase_of(rank);
  evidence.phase_age = now_ - phase_start_;
  evidence.step = marks_ / kLayers;
  evidence.process_state = 'S';
  const bool stuck = is_culprit(rank);
  const bool mate = broken_ && before_tensor_ && node_of(rank) == node_of(*culprits_.begin());
  const bool computes = !broken_ && (stands_until_ <= now_ || rank == paused_rank_);
  if (computes) evidence.process_state = 'R';
  // The other ranks are in their node's next collective, or have completed it and wait in the
  // collective of all ranks.
  const int64_t tensor = marks_ + (mate ? 0 : broken_ || !computes ? 1 : 0);
  evidence.groups = {
      group("tensor", ranks_per_node_, node_of(rank) * ranks_per_node_, tensor, mate),
      group("data", ranks_, 0, marks_, broken_ ? !mate : !computes)};
  if (!stuck) return evidence;
  GroupEvidence& all = evidence.groups[1];
  evidence.groups[0] = group("tensor", ranks_per_node_, node_of(rank) * ranks_per_node_,
                             marks_ + (before_tensor_ ? 0 : 1), false);
  all = group("data", ranks_, 0, marks_, false);
  switch (trouble_) {
    case Trouble::kStopped:
    case Trouble::kTwoStopped:
      evidence.process_state = 'T';
      break;
    case Trouble::kStopsInside:
      evidence.process_state = 'T';
      evidence.groups[before_tensor_ ? 0 : 1].enqueued += 1;
      evidence.groups[before_tensor_ ? 0 : 1].started += 1;
      break;
    case Trouble::kLoop:
      evidence.process_state = 'R';
      break;
    case Trouble::kDisk:
    case Trouble::kLoader:
      evidence.phase = Phase::kData;
      evidence.process_state = trouble_ == Trouble::kDisk ? 'D' : 'S';
      break;
    case Trouble::kSkips:
    case Trouble::kOtherCall:
      all = group("data", ranks_, 0, marks_, true);
      if (trouble_ == Trouble::kOtherCall) {
        all.kind = CollectiveKind::kBroadcast;
        all.bytes = 8;
      }
      break;
    default:
      break;
  }
  return evidence;
}

ThreadStack Fleet::stack_of(int32_t rank) const {
  ThreadStack stack;
  stack.name = "main";
  const RankEvidence evidence = evidence_of(rank);
  const auto ticks = static_cast<uint64_t>(now_.time_since_epoch() / kTick);
  std::vector<uint64_t> calls = {0x10, 0x20};
  const bool enters = evidence.groups[0].waits() || evidence.groups[1].waits();
  if (enters) {
    calls.insert(calls.end(), {0x30, evidence.groups[0].waits() ? 0x31ULL : 0x32ULL, 0x40});
  } else if (is_culprit(rank)) {
    calls.insert(calls.end(), {0x50, 0x51, trouble_ == Trouble::kLoop ? 0x60 + ticks % 7 : 0x52});
  } else {
    const bool still = rank == paused_rank_;
    calls.insert(calls.end(), {0x70, 0x80 + (still ? 0 : ticks % 31), 0x90});
  }
  for (const uint64_t address : calls) stack.frames.push_back({0, address, ""});
  return stack;
}

// The intervals between repetitions double.
int32_t Fleet::repetitions(int32_t node) const {
  if (trouble_ != Trouble::kPairCut || !broken_ ||
      (node != node_of(*culprits_.begin()) && node != node_of(*culprits_.rbegin())))
    return 0;
  int32_t count = 0;
  Duration interval = kFirstRepetition;
  for (Instant next = began_at_ + interval; next <= now_; next += interval) {
    ++count;
    interval *= 2;
  }
  return count >= kRepetitionsReported ? count : 0;
}

// Returns the text about the pair; the core orders nodes by name.
std::string Fleet::pair_text() const {
  const std::pair<WorkerName, WorkerName> pair = std::minmax(
      name_of_node(node_of(*culprits_.begin())), name_of_node(node_of(*culprits_.rbegin())));
  return absl::StrCat("nodes ", pair.first.value(), " and ", pair.second.value(),
                      " cannot reach each other");
}

void Fleet::end_ranks(int32_t node, const coordinator::SendStopRanks& order) {
  for (const Rank rank : order.ranks) {
    coordinator::RankExited event;
    event.worker = name_of_node(node);
    event.job = order.job;
    event.attempt = order.attempt;
    event.rank = rank;
    event.exit_code = -1;
    event.signal = 9;
    send(random_.between_ms(5, 60), event);
  }
}

void Fleet::report(const Report& due) {
  if (nodes_state_[static_cast<size_t>(due.node)].silent_until > now_) return;
  coordinator::StackReportReceived event;
  event.worker = name_of_node(due.node);
  event.dump = due.dump.dump;
  event.job = due.dump.job;
  event.attempt = due.dump.attempt;
  event.sample = due.sample;
  StackSample stacks;
  stacks.modules.push_back({"abcdef", "/usr/bin/muster-trainer"});
  for (const Rank rank : due.dump.ranks) {
    event.ranks.push_back(evidence_of(rank.value()));
    RankStacks& read = stacks.ranks.emplace_back();
    read.rank = rank.value();
    read.threads.push_back(stack_of(rank.value()));
  }
  event.stacks.add(stacks);
  step(event);
}

// Judges each incident once, by its first version.
void Fleet::judge(const coordinator::Incident& incident) {
  using coordinator::IncidentKind;
  if (!incidents_.insert_or_assign(incident.id, incident).second) return;
  const Expected expected = expected_of(trouble_);
  if (!began_ || expected == Expected::kNothing) {
    ++result_.false_alarms;
    result_.sentence = incident.sentence;
    return;
  }
  if (result_.reported) return;
  result_.reported = true;
  result_.latency = reported_at_.value_or(now_) - began_at_;
  result_.sentence = incident.sentence;
  const bool node =
      trouble_ == Trouble::kWorkerKilled || is_cut_off() || trouble_ == Trouble::kNodePaused;
  const bool hang = expected == Expected::kHang || expected == Expected::kPassing;
  const IncidentKind kind = node                          ? IncidentKind::kWorkerLost
                            : hang                        ? IncidentKind::kHang
                            : expected == Expected::kSlow ? IncidentKind::kSlowRank
                                                          : IncidentKind::kRankDied;
  if (trouble_ == Trouble::kPairCut) {
    result_.right = incident.kind == kind && incident.sentence.starts_with(pair_text());
    return;
  }
  result_.right = incident.kind == kind && incident.suspects.size() >= culprits_.size();
  for (size_t i = 0; result_.right && i < culprits_.size(); ++i) {
    const coordinator::Suspect& suspect = incident.suspects[i];
    result_.right = node ? suspect.worker == name_of_node(node_of(*culprits_.begin()))
                         : culprits_.contains(suspect.rank.value());
  }
}

}  // namespace muster::simulation

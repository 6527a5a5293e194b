#include "tests/simulation/fleet.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/core/liveness/links.h"
#include "coordinator/core/records/sizes.h"

namespace muster::simulation {
namespace {

using namespace coordinator;  // NOLINT: this file is about its types
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kHeartbeats = milliseconds(250);
constexpr double kWaits = 0.25;  // part of a step spent waiting for peers if no rank is slow
constexpr Duration kNodePause = seconds(3);
constexpr Duration kWorkerSilence = seconds(6);
constexpr Duration kLongPhase = seconds(60);
// The simulated time after a harmless disturbance, and the time after which an undetected fault
// counts as missed.
constexpr Duration kAfterwards = seconds(12);
constexpr Duration kSlowIsFoundWithin = seconds(90);
// Bounds of the pauses of a busy machine that must not cause an incident (docs/hangs.md). The pause
// of a rank is shorter than the time to suspect its job and to sample it twice; the pause of a node
// is shorter than the silence that opens an incident.
constexpr uint64_t kRankPauseMsMax = 1'900;
constexpr uint64_t kNodePauseMsMax = 1'900;
// Bounds of a silence that is reported and is not an incident.
constexpr uint64_t kLinkLostMsMin = 1'000;
constexpr uint64_t kLinkLostMsMax = 2'200;
constexpr Duration kStoppedWithSpare = milliseconds(2'600);
constexpr Duration kStoppedWithout = milliseconds(3'600);
constexpr Duration kPausesLast = seconds(40);
// From the cut of a link to the end of the attempt: the kernel repeats the segment after 3 s, which
// is before the due time, and after 6.2 s.
constexpr Duration kStoppedByLink = milliseconds(7'400) + kAnswerTime;

WorkerName name_of(int32_t node) { return WorkerName(absl::StrCat("node", node)); }

CoreOptions fleet_options() {
  CoreOptions options;
  options.version = "fleet";
  return options;
}

}  // namespace

Expected expected_of(Trouble trouble) {
  if (trouble <= Trouble::kTwoStopped || trouble == Trouble::kPairCut) return Expected::kHang;
  if (trouble <= Trouble::kNodePaused) return Expected::kEnd;
  if (trouble <= Trouble::kThriceAsSlow) return Expected::kSlow;
  return trouble == Trouble::kLongPauses ? Expected::kPassing : Expected::kNothing;
}

Fleet::Fleet(int32_t ranks, Trouble trouble, uint64_t seed)
    : ranks_(ranks),
      ranks_per_node_(std::min<int32_t>(8, ranks / 2)),
      nodes_(ranks / ranks_per_node_),
      trouble_(trouble),
      random_(seed * 1'000 + static_cast<uint64_t>(trouble)),
      step_time_(random_.between_ms(200, 1'200)),
      nodes_state_(static_cast<size_t>(nodes_ + (has_spare() ? 1 : 0))),
      core_(fleet_options(), DurableState{}, now_) {
  for (Node& node : nodes_state_) node.offset = kTick * static_cast<int64_t>(random_.below(10));
  first_mark_ = kLayers * static_cast<int64_t>(14 + random_.below(6)) +
                static_cast<int64_t>(random_.below(kLayers));
  culprits_.insert(static_cast<int32_t>(random_.below(static_cast<uint64_t>(ranks))));
  const bool two = trouble_ == Trouble::kTwoStopped || trouble_ == Trouble::kPairCut;
  while (two && culprits_.size() < 2) {
    const auto other = static_cast<int32_t>(random_.below(static_cast<uint64_t>(ranks)));
    if (node_of(other) != node_of(*culprits_.begin())) culprits_.insert(other);
  }
  before_tensor_ = trouble_ == Trouble::kSkips || random_.chance(0.5);
  if (two || trouble_ == Trouble::kOtherCall) before_tensor_ = false;
}

FleetResult Fleet::run() {
  register_workers();
  submit();
  begin_step();
  if (trouble_ == Trouble::kCompiles) enter(Phase::kCompile, true);
  const Expected expected = expected_of(trouble_);
  const bool long_phase = trouble_ == Trouble::kEvaluates || trouble_ == Trouble::kSaves;
  const Duration watched = expected == Expected::kSlow ? kSlowIsFoundWithin
                           : pauses_again()            ? kPausesLast + kAfterwards
                           : long_phase                ? kLongPhase + kAfterwards
                                                       : kAfterwards;
  const bool continues = expected == Expected::kNothing || expected == Expected::kPassing ||
                         trouble_ == Trouble::kNodePaused;
  while (!began_ || now_ < began_at_ + watched) {
    tick();
    if (is_stopped() && result_.stopped == Duration::zero() && began_ && !is_running(job().state))
      result_.stopped = now_ - began_at_;
    const bool has_ended =
        trouble_ == Trouble::kPairCut ? job().attempt > Attempt(1) : !is_running(job().state);
    if (result_.reported && !continues && (!is_stopped() || has_ended)) break;
  }
  const bool lives = is_running(job().state) && job().attempt == Attempt(1);
  if (!lives && continues) ++result_.ended;
  if (expected == Expected::kPassing) {
    result_.right = result_.reported && incidents_.size() == 1;
    for (const auto& [id, incident] : incidents_)
      result_.right =
          result_.right && !incident.open && incident.action == "none: it resumed by itself";
  }
  if (expected == Expected::kHang) result_.bound = 3 * step_time_ + seconds(3);
  if (expected == Expected::kEnd) result_.bound = seconds(1);
  // The stacks of a job with long steps are read when a step has taken twice as long as the longest
  // recent step.
  const Duration long_step = step_time_ * 230 / 100 + milliseconds(1'350);
  if (is_cut_off())
    result_.stop_bound = std::max(long_step, has_spare() ? kStoppedWithSpare : kStoppedWithout);
  if (trouble_ == Trouble::kPairCut) {
    result_.stop_bound = kStoppedByLink;
    int used = 0;
    for (const WorkerName& node : nodes_of(job().placement))
      for (const int32_t culprit : culprits_) used += node == name_of(node_of(culprit)) ? 1 : 0;
    result_.moved = job().attempt == Attempt(2) && used == 1;
  }
  return result_;
}

void Fleet::register_workers() {
  for (int32_t node = 0; node < std::ssize(nodes_state_); ++node) {
    WorkerRegistered event;
    event.worker = name_of(node);
    event.incarnation = Incarnation(1);
    event.version = "fleet";
    event.host = event.worker.value();
    event.slots = ranks_per_node_;
    event.place = {absl::StrCat("spine.leaf", node / 36), absl::StrCat("rack", node / 18)};
    event.rendezvous_address = absl::StrCat(event.worker.value(), ":1");
    step(event);
  }
}

void Fleet::submit() {
  JobSpec spec;
  spec.name = "large";
  spec.nodes = nodes_;
  spec.ranks_per_node = ranks_per_node_;
  spec.output_directory = "/out";
  spec.restarts_max = 1;
  step(JobSubmitted{RequestToken(1), "", spec, 0});
}

// --- the simulated truth ---

void Fleet::begin_step() {
  const Duration time = step_time_ + step_time_ * static_cast<int64_t>(random_.below(15)) / 100;
  const double own = to_seconds(time) * (1 - kWaits);
  const double wait = to_seconds(time) * kWaits;
  newest_.seconds = slow_factor_ > 1 ? own * slow_factor_ + wait / 4 : own + wait;
  newest_.waited = newest_.seconds - own;
  newest_.waited_slow = newest_.seconds - own * slow_factor_;
  layer_time_ = Duration(std::llround(newest_.seconds * 1e9)) / kLayers;
  next_mark_ = now_ + layer_time_;
}

void Fleet::enter(Phase phase, bool all) {
  phase_ = phase;
  all_in_phase_ = all;
  phase_start_ = now_;
  phase_ends_ = now_ + kLongPhase;
}

void Fleet::train() {
  if (phase_ != Phase::kStep) {
    if (phase_ends_ > now_) return;
    phase_ = Phase::kStep;
    phase_start_ = now_;
    next_mark_ = now_ + layer_time_;
  }
  while (!broken_ && next_mark_ <= now_ && phase_ == Phase::kStep) {
    last_mark_ = next_mark_;
    next_mark_ += layer_time_;
    ++marks_;
    if (marks_ % kLayers == 0) {
      completed_.seconds += newest_.seconds;
      completed_.waited += newest_.waited;
      completed_.waited_slow += newest_.waited_slow;
      last_step_seconds_ = newest_.seconds;
      begin_step();
    }
    if (marks_ >= first_mark_ && !began_) begin_trouble();
  }
}

void Fleet::begin_trouble() {
  began_ = true;
  began_at_ = now_;
  const int32_t culprit = *culprits_.begin();
  Node& node = nodes_state_[static_cast<size_t>(node_of(culprit))];
  switch (trouble_) {
    case Trouble::kRankKilled: {
      RankExited event;
      event.worker = name_of(node_of(culprit));
      event.job = JobId(1);
      event.attempt = Attempt(1);
      event.rank = Rank(culprit);
      event.exit_code = -1;
      event.signal = 9;
      broken_ = true;
      return send(random_.between_ms(5, 60), event);
    }
    case Trouble::kWorkerKilled:
      broken_ = true;
      node.silent_until = Instant::max();
      send(random_.between_ms(1, 50), WorkerDisconnected{name_of(node_of(culprit)), {}, 0});
      for (int32_t rank = 0, reported = 0; rank < ranks_ && reported < 4; ++rank) {
        if (node_of(rank) == node_of(culprit)) continue;
        RankExited event;
        event.worker = name_of(node_of(rank));
        event.job = JobId(1);
        event.attempt = Attempt(1);
        event.rank = Rank(rank);
        event.exit_code = 76;
        send(random_.between_ms(60, 300), event);
        ++reported;
      }
      return;
    case Trouble::kNodeCutOff:
    case Trouble::kNodeCutOffWithSpare:
      broken_ = true;
      node.silent_until = Instant::max();
      return;
    case Trouble::kNodePaused:
      node.silent_until = now_ + kNodePause;
      stands_until_ = now_ + kNodePause;
      return;
    case Trouble::kLinkLost:
      node.silent_until = stands_until_ = now_ + random_.between_ms(kLinkLostMsMin, kLinkLostMsMax);
      return;
    case Trouble::kWorkerPaused:
    case Trouble::kWorkerCutOff:
      node.silent_until = now_ + kWorkerSilence;
      return;
    case Trouble::kSlowByHalf:
    case Trouble::kThriceAsSlow:
      slow_factor_ = trouble_ == Trouble::kSlowByHalf ? 1.5 : 3;
      return;
    case Trouble::kClockJumps:
      unix_ns_ += (random_.chance(0.5) ? 1 : -1) * int64_t{3'600'000'000'000};
      return;
    case Trouble::kEvaluates:
    case Trouble::kSaves:
      return enter(trouble_ == Trouble::kSaves ? Phase::kCheckpointSave : Phase::kEval,
                   trouble_ == Trouble::kEvaluates);
    case Trouble::kLateHeartbeats:
    case Trouble::kLostHeartbeats:
    case Trouble::kCompiles:
    case Trouble::kShortPauses:
    case Trouble::kLongPauses:
      return;
    default:
      broken_ = true;
  }
}

// Pauses a rank, a node, or only a worker. Then all ranks run normally for a second, because a
// worker that is silent while its job makes no progress would be reported.
void Fleet::pause_some() {
  if (!pauses_again() || !began_ || now_ > began_at_ + kPausesLast) return;
  if (pauses_until_ + seconds(1) > now_ || !random_.chance(0.02)) return;
  if (trouble_ == Trouble::kLongPauses) {
    paused_rank_ = *culprits_.begin();
    pauses_until_ = stands_until_ = now_ + random_.between_ms(5'000, 9'000);
    return;
  }
  const auto rank = static_cast<int32_t>(random_.below(static_cast<uint64_t>(ranks_)));
  Node& node = nodes_state_[static_cast<size_t>(node_of(rank))];
  switch (random_.below(3)) {
    case 0:
      paused_rank_ = rank;
      pauses_until_ = stands_until_ = now_ + random_.between_ms(50, kRankPauseMsMax);
      return;
    case 1:
      pauses_until_ = stands_until_ = now_ + random_.between_ms(50, kNodePauseMsMax);
      node.silent_until = stands_until_;
      return;
    default:
      pauses_until_ = node.silent_until = now_ + random_.between_ms(50, 4'000);
  }
}

// --- reports to the coordinator ---

void Fleet::tick() {
  now_ += kTick;
  unix_ns_ += kTick.count();
  if (stands_until_ > now_) {
    next_mark_ += kTick;
  } else {
    paused_rank_ = -1;
    train();
  }
  pause_some();
  for (int32_t node = 0; node < std::ssize(nodes_state_); ++node) {
    const Node& one = nodes_state_[static_cast<size_t>(node)];
    if ((now_.time_since_epoch() + one.offset) % kHeartbeats < kTick && one.silent_until <= now_)
      heartbeat(node);
  }
  while (!on_the_way_.empty() && on_the_way_.begin()->first <= now_) {
    const Event event = std::move(on_the_way_.begin()->second);
    on_the_way_.erase(on_the_way_.begin());
    step(event);
  }
  while (!reports_.empty() && reports_.begin()->first <= now_) {
    const Report due = reports_.begin()->second;
    reports_.erase(reports_.begin());
    report(due);
  }
  const auto deadline = core_.next_deadline();
  if (deadline && *deadline <= now_) step(Tick{});
}

void Fleet::heartbeat(int32_t index) {
  Node& node = nodes_state_[static_cast<size_t>(index)];
  if (began_ && trouble_ == Trouble::kLostHeartbeats && random_.chance(0.1)) return;
  HeartbeatReceived event;
  event.worker = name_of(index);
  const int32_t repeated = repetitions(index);
  const int64_t news = 64 * marks_ + 2 * repeated + (phase_ == Phase::kStep ? 0 : 1);
  if (index < nodes_ && std::exchange(node.reported, news) != news) {
    const auto steps = static_cast<uint64_t>(marks_ / kLayers);
    for (int32_t rank = index * ranks_per_node_; rank < (index + 1) * ranks_per_node_; ++rank) {
      const bool slow = slow_factor_ > 1 && culprits_.contains(rank);
      RankProgress& page = event.ranks.emplace_back();
      page.job = JobId(1);
      page.attempt = Attempt(1);
      page.rank = Rank(rank);
      page.phase = phase_of(rank);
      page.phase_age = now_ - phase_start_;
      page.last_progress_age = now_ - last_mark_;
      page.step = static_cast<int64_t>(steps);
      page.step_seconds = last_step_seconds_;
      page.step_times.counts[6] = steps;
      page.step_times.seconds = completed_.seconds;
      page.collective_wait_seconds = slow ? completed_.waited_slow : completed_.waited;
      if (repeated == 0 || !culprits_.contains(rank)) continue;
      for (const int32_t other : culprits_)
        if (other != rank)
          page.stalled_links.push_back({name_of(node_of(other)).value(), 4711, false, repeated});
    }
  }
  const bool late = began_ && trouble_ == Trouble::kLateHeartbeats && random_.chance(0.2);
  send(late ? random_.between_ms(100, 400) : random_.between_ms(1, 20), event);
}

// Sends through the worker's stream, which preserves order.
void Fleet::send(Duration delay, const Event& event) {
  Instant when = now_ + delay;
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { e.worker; }) {
          Instant& newest = newest_of_[std::stoi(e.worker.value().substr(4))];
          when = newest = std::max(newest, when);
        }
      },
      event);
  on_the_way_.emplace(when, event);
}

// --- the coordinator's decisions ---

void Fleet::step(Event event) {
  std::visit(
      [&](auto& e) {
        e.unix_ns = unix_ns_;
        if constexpr (requires { e.incarnation; }) e.incarnation = Incarnation(1);
      },
      event);
  ActionList actions;
  core_.take(event, now_, actions);
  core_.place_jobs(actions);
  if (began_ && !reported_at_ &&
      job().reason.starts_with(
          absl::StrCat("worker ", name_of(node_of(*culprits_.begin())).value(), " ")))
    reported_at_ = now_;
  for (const Action& action : actions) {
    if (const auto* incident = std::get_if<PersistIncident>(&action)) judge(incident->incident);
    const auto* send = std::get_if<SendToWorker>(&action);
    const auto* stop = send == nullptr ? nullptr : std::get_if<SendStopRanks>(&send->payload);
    if (stop != nullptr && trouble_ == Trouble::kPairCut)
      end_ranks(std::stoi(send->worker.value().substr(4)), *stop);
    const auto* dump = send == nullptr ? nullptr : std::get_if<SendDumpStacks>(&send->payload);
    if (dump == nullptr) continue;
    for (int32_t sample = 0; sample < dump->samples; ++sample) {
      reports_.emplace(now_ + sample * dump->apart + random_.between_ms(30, 250),
                       Report{node_of(dump->ranks.front().value()), *dump, sample});
    }
  }
}

}  // namespace muster::simulation

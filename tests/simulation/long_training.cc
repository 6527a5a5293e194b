#include "tests/simulation/long_training.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/core/recovery/avoidance.h"

namespace muster::simulation {
namespace {

using namespace coordinator;  // NOLINT: this file is about its types
using std::chrono::milliseconds;
using std::chrono::seconds;

// The time before and after each event that is simulated in ticks.
constexpr Duration kCloselyWatched = seconds(8);
// The time that is skipped at once while the job waits in the queue, because a back-off may end.
constexpr Duration kQueueSkip = seconds(3);
// The time that is skipped at once while the job may soon grow.
constexpr Duration kGrowSkip = seconds(10);
// The minimum time to skip. The core is called at least this often.
constexpr Duration kSkipMin = seconds(2);
// The duration of a node check, as measured (docs/recovery.md).
constexpr Duration kNodeCheck = milliseconds(200);
constexpr double kPeerWait = 0.25;   // part of a step spent waiting for peers
constexpr double kNoise = 0.03;      // relative difference between equal computations
constexpr size_t kStepsBucket = 10;  // bucket of StepTimes for steps of 5 to 10 s

// The time that is skipped at once in a training with slow nodes, whose pages are compared.
constexpr Duration kSlowNodesSkip = seconds(25);

CoreOptions options_of(const LongPlan& plan) {
  CoreOptions options;
  options.version = "long";
  options.slow_nodes = plan.slow_nodes;
  return options;
}

}  // namespace

LongTraining::LongTraining(const LongPlan& plan, uint64_t seed)
    : plan_(plan),
      ranks_(plan.nodes * plan.ranks_per_node),
      random_(seed),
      nodes_(static_cast<size_t>(plan.nodes + plan.spares)),
      core_(options_of(plan), DurableState{}, now_) {}

Instant LongTraining::end() const {
  constexpr double kDayNs = 86'400e9;
  return began_ + Duration(static_cast<int64_t>(plan_.days * kDayNs));
}

LongResult LongTraining::run() {
  for (int32_t node = 0; node < plan_.nodes + plan_.spares; ++node) register_node(node);
  JobSpec spec;
  spec.name = "long";
  spec.nodes = plan_.nodes;
  spec.ranks_per_node = plan_.ranks_per_node;
  spec.spares = plan_.spares;
  for (const int32_t nodes : plan_.smaller_sizes) spec.smaller.push_back({nodes, "{}"});
  spec.min_nodes = plan_.smaller_sizes.empty() ? 0 : plan_.smaller_sizes.back();
  spec.restarts_max = 3;
  spec.output_directory = "/out";
  newest_step_ = now_;
  step(JobSubmitted{RequestToken(1), "", spec, 0});
  plan_interruption();
  if (plan_.slow_nodes_per_day > 0) plan_slow_node();
  while (now_ < end() && !is_terminal(job().state)) {
    if (const Duration idle = idle_time(); idle >= kSkipMin) skip(idle);
    tick();
  }
  result_.table = table_of(core_.account_of(job(), now_));
  result_.state = job().state;
  result_.reason = job().reason;
  result_.steps = highest_;
  result_.attempts = static_cast<int32_t>(job().attempt.value());
  for (auto& [id, incident] : incidents_) {
    incident.ranks.clear();
    incident.stacks = {};
    result_.incidents.push_back(incident);
  }
  return std::move(result_);
}

// Returns the time for which no event reaches the core, and it only waits for the back-off.
Duration LongTraining::idle_time() const {
  const bool ends = broken_ && life_ != Life::kNone;
  if (now_ < quiet_from_ || !on_the_way_.empty() || !reports_.empty() || ends)
    return Duration::zero();
  // Each worker sends one heartbeat between two skips.
  if (ticks_ < skipped_at_ + kTicksPerHeartbeat) return Duration::zero();
  Instant until = std::min(next_interruption_, end());
  if (!repairs_.empty()) until = std::min(until, repairs_.begin()->first);
  if (!services_.empty()) until = std::min(until, services_.begin()->first);
  switch (life_) {
    case Life::kNone:
      return job().state == JobState::kQueued ? std::min(kQueueSkip, until - now_)
                                              : Duration::zero();
    case Life::kStarting:
      return Duration::zero();
    case Life::kLoading:
      return std::min(until - kCloselyWatched, loaded_ - seconds(1)) - now_;
    case Life::kTraining:
      if (made_ < 2) return Duration::zero();
      // The moment of catching up is simulated in detail, too.
      if (base_ + made_ <= highest_ && job().recovering != IncidentId(0))
        until = std::min(until, now_ + (highest_ + 1 - base_ - made_) * step_time_);
      if (job().state != JobState::kRunning) return Duration::zero();
      const bool may_grow = nodes_now(job()) < plan_.nodes && !job().held.empty();
      const Duration most = may_grow                       ? kGrowSkip
                            : plan_.slow_nodes_per_day > 0 ? kSlowNodesSkip
                                                           : Duration::max();
      return std::min(until - kCloselyWatched - now_, most);
  }
  return Duration::zero();
}

void LongTraining::skip(Duration time) {
  skipped_at_ = ticks_;
  if (life_ == Life::kNone)
    waited_for_ = absl::StrCat(av(job_state_name(job().state)), " ", job().reason);
  now_ += time;
  unix_ns_ += time.count();
  train();
}

void LongTraining::tick() {
  now_ += kTick;
  unix_ns_ += kTick.count();
  ++ticks_;
  train();
  for (auto node = static_cast<int32_t>(ticks_ % kTicksPerHeartbeat);
       node < plan_.nodes + plan_.spares; node += kTicksPerHeartbeat)
    heartbeat(node);
  while (!on_the_way_.empty() && on_the_way_.begin()->first <= now_) {
    const Event event = std::move(on_the_way_.extract(on_the_way_.begin()).mapped());
    step(event);
  }
  while (!reports_.empty() && reports_.begin()->first <= now_) {
    const Report due = std::move(reports_.extract(reports_.begin()).mapped());
    report(due.node, due.dump, due.sample);
  }
  while (!leaving_.empty() && leaving_.begin()->first <= now_)
    nodes_[static_cast<size_t>(leaving_.extract(leaving_.begin()).mapped())].in_service = false;
  while (!repairs_.empty() && repairs_.begin()->first <= now_)
    bring_back(repairs_.extract(repairs_.begin()).mapped());
  service_devices();
  if (bad_devices_fail_ && *bad_devices_fail_ <= now_) fail_bad_devices();
  if (next_interruption_ <= now_) interrupt();
  change_slow_nodes();
  const auto deadline = core_.next_deadline();
  if (deadline && *deadline <= now_) step(Tick{});
}

// --- the simulated truth ---

void LongTraining::begin_step(Instant when) {
  const int64_t percent = static_cast<int64_t>(random_.below(5)) - 2;
  usual_time_ = step_time_ + step_time_ * percent / 100;
  const double slow = 1 + (1 - kPeerWait) * (slowest_ - 1);
  layer_time_ = Duration(std::llround(static_cast<double>(usual_time_.count()) * slow)) / kLayers;
  next_mark_ = when + layer_time_;
  if (saving_until_ <= when) saved_ = std::max(saved_, saving_);
}

// Returns the job's largest size for which enough nodes are healthy and not avoided, even if the
// coordinator has not noticed it yet.
int32_t LongTraining::nodes_possible() const {
  const std::set<WorkerName> avoided = nodes_to_avoid(job(), unix_ns_);
  int64_t well = 0;
  for (int32_t index = 0; index < std::ssize(nodes_); ++index) {
    const Node& node = nodes_[static_cast<size_t>(index)];
    const bool is_well = node.in_service && !node.silent && node.bad_device < 0;
    well += is_well && !avoided.contains(name_of(index)) ? 1 : 0;
  }
  if (well >= plan_.nodes) return plan_.nodes;
  const auto fits =
      std::ranges::find_if(plan_.smaller_sizes, [well](int32_t n) { return n <= well; });
  return fits == plan_.smaller_sizes.end() ? 0 : *fits;
}

void LongTraining::train() {
  if (broken_) return;
  if (life_ == Life::kStarting && up_ <= now_) {
    life_ = Life::kLoading;
    phase_start_ = last_mark_ = up_;
    ++news_;
  }
  if (life_ == Life::kLoading && loaded_ <= now_) {
    life_ = Life::kTraining;
    phase_start_ = last_mark_ = loaded_;
    begin_step(loaded_);
    ++news_;
  }
  while (life_ == Life::kTraining && next_mark_ <= now_) {
    last_mark_ = next_mark_;
    ++news_;
    if (++marks_ % kLayers == 0) {
      complete_step();
    } else {
      next_mark_ += layer_time_;
    }
  }
}

void LongTraining::complete_step() {
  ++made_;
  const Duration length = layer_time_ * kLayers;
  seconds_ += to_seconds(length);
  usual_seconds_ += to_seconds(usual_time_);
  if (plan_.slow_nodes_per_day > 0) {
    for (Node& node : nodes_) {
      if (node.first_rank < 0) continue;
      const double noise = static_cast<double>(random_.below(1'000)) / 500 - 1;
      node.excess += to_seconds(usual_time_) * (1 - kPeerWait) *
                     (work_of(node) * node.slowness * (1 + kNoise * noise) - 1);
    }
  }
  const int64_t newest = base_ + made_;
  if (newest > highest_) {
    highest_ = newest;
    result_.productive += length;
    result_.lost_to_slow_nodes += length - usual_time_;
    if (const int32_t nodes = nodes_now(job()); nodes < plan_.nodes) {
      result_.on_fewer_nodes += length;
      if (nodes < nodes_possible()) result_.on_fewer_than_possible += length;
    }
    const Duration without = last_mark_ - newest_step_;
    const std::string waited_for = std::exchange(waited_for_, "");
    if (without > result_.longest_without_a_step) {
      result_.longest_without_a_step = without;
      result_.waited_for = waited_for;
    }
    newest_step_ = last_mark_;
  }
  Instant next = last_mark_;
  if (newest % plan_.checkpoint_every == 0) {
    next += plan_.save_stall;
    stall_seconds_ += to_seconds(plan_.save_stall);
    saving_ = newest;
    saving_until_ = next + plan_.save_time;
  }
  begin_step(next);
}

// --- reports to the coordinator ---

void LongTraining::heartbeat(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  if (!node.in_service || node.silent) return;
  HeartbeatReceived event;
  event.worker = name_of(index);
  event.incarnation = Incarnation(node.incarnation);
  const bool has_pages = node.first_rank >= 0 && up_ <= now_;
  if (has_pages && std::exchange(node.reported, news_) != news_) {
    for (int32_t local = 0; local < plan_.ranks_per_node; ++local) {
      if (node.ended.contains(node.first_rank + local)) continue;
      RankProgress& page = event.ranks.emplace_back();
      page.job = JobId(1);
      page.attempt = attempt_;
      page.rank = Rank(node.first_rank + local);
      page.phase = life_ == Life::kTraining ? Phase::kStep : Phase::kLoad;
      page.phase_age = now_ - phase_start_;
      page.last_progress_age = now_ - last_mark_;
      if (life_ == Life::kTraining) page.step = base_ + made_;
      if (made_ > 0) page.step_seconds = seconds_ / static_cast<double>(made_);
      page.step_times.counts[kStepsBucket] = static_cast<uint64_t>(made_);
      page.step_times.seconds = seconds_;
      page.collective_wait_seconds = seconds_ - usual_seconds_ * (1 - kPeerWait) - node.excess;
      page.checkpoints.stall_seconds = stall_seconds_;
      page.checkpoint_step = saved_;
    }
  }
  step(std::move(event));
}

void LongTraining::after(Duration delay, Event event) {
  on_the_way_.emplace(now_ + delay, std::move(event));
}

void LongTraining::step(Event event) {
  std::visit([&](auto& e) { e.unix_ns = unix_ns_; }, event);
  ActionList actions;
  core_.take(event, now_, actions);
  core_.place_jobs(actions);
  for (const Action& action : actions) {
    if (const auto* incident = std::get_if<PersistIncident>(&action)) {
      check_incident(incident->incident);
      incidents_.insert_or_assign(incident->incident.id, incident->incident);
    } else if (const auto* refused = std::get_if<RefuseRegistration>(&action)) {
      // The coordinator still waits for the worker's earlier incarnation, so the worker tries again
      // later.
      repairs_.emplace(now_ + seconds(60), index_of(refused->worker));
    } else if (const auto* send = std::get_if<SendToWorker>(&action)) {
      carry_out(send->worker, send->payload);
    }
  }
}

// Counts the nodes that the coordinator confirms as slow.
void LongTraining::check_incident(const Incident& incident) {
  for (const coordinator::SlowNode& found : job().slow_nodes) {
    if (found.incident != incident.id || !slow_incidents_.insert(incident.id).second) continue;
    const Node& node = nodes_[static_cast<size_t>(index_of(found.worker))];
    ++result_.slow_nodes_found;
    if (node.slowness <= 1) ++result_.slow_nodes_mistaken;
  }
}

void LongTraining::carry_out(const WorkerName& name, const WorkerPayload& payload) {
  const int32_t index = index_of(name);
  const Node& node = nodes_[static_cast<size_t>(index)];
  if (!node.in_service || node.silent) return;
  if (const auto* start = std::get_if<SendStartRanks>(&payload)) {
    if (start->attempt > attempt_) begin_attempt(*start);
  } else if (const auto* stop = std::get_if<SendStopRanks>(&payload)) {
    end_ranks(index, *stop);
  } else if (const auto* dump = std::get_if<SendDumpStacks>(&payload)) {
    for (int32_t sample = 0; sample < dump->samples; ++sample) {
      reports_.emplace(now_ + sample * dump->apart + random_.between_ms(30, 250),
                       Report{index, *dump, sample});
    }
  } else if (const auto* check = std::get_if<SendCheckNode>(&payload)) {
    const coordinator::NodeCheckResult good{true, to_seconds(kNodeCheck), "all good", ""};
    after(kNodeCheck,
          coordinator::NodeChecked{name, Incarnation(node.incarnation), check->check, good, 0});
  }
}

void LongTraining::begin_attempt(const SendStartRanks& order) {
  attempt_ = order.attempt;
  for (Node& node : nodes_) node.first_rank = -1;
  for (const RankPlacement& rank : job().placement) {
    if (rank.local_rank != 0) continue;
    Node& node = nodes_[static_cast<size_t>(index_of(rank.worker))];
    node.first_rank = rank.rank.value();
    node.ended.clear();
    node.reported = -1;
  }
  for (Node& node : nodes_) node.excess = 0;
  find_slowest();
  step_time_ = plan_.step_time * plan_.nodes / nodes_now(job());
  life_ = Life::kStarting;
  broken_ = false;
  culprit_ = -1;
  up_ = now_ + plan_.process_start + random_.between_ms(0, 1'000);
  loaded_ = up_ + plan_.load;
  bad_devices_fail_ = up_ + random_.between_ms(100, 2'000);
  base_ = saved_;
  made_ = marks_ = 0;
  seconds_ = usual_seconds_ = stall_seconds_ = 0;
  watch_closely();
}

// Kills ranks, or stops them with a checkpoint that all of them write together.
void LongTraining::end_ranks(int32_t index, const SendStopRanks& order) {
  Node& node = nodes_[static_cast<size_t>(index)];
  if (order.attempt != attempt_) return;
  const bool leaves = order.grace > Duration::zero() && life_ == Life::kTraining && culprit_ < 0;
  const Duration time = leaves ? plan_.save_time : plan_.stop_time;
  const Duration late = random_.between_ms(0, 200);
  for (const Rank rank : order.ranks) {
    if (!node.ended.insert(rank.value()).second) continue;
    break_training();
    if (leaves) saved_ = std::max(saved_, base_ + made_);
    RankExited event = exit_of(index, rank.value());
    event.exit_code = leaves ? 75 : -1;
    event.signal = leaves ? 0 : 9;
    after(time + late, event);
  }
  const auto is_gone = [this](const Node& one) {
    return one.first_rank < 0 || !one.in_service || one.silent ||
           std::ssize(one.ended) == plan_.ranks_per_node;
  };
  if (std::all_of(nodes_.begin(), nodes_.end(), is_gone)) life_ = Life::kNone;
  watch_closely();
}

}  // namespace muster::simulation

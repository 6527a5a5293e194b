#include "tests/simulation/world.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/job/limits.h"
#include "common/text/absl_view.h"
#include "coordinator/core/records/sizes.h"

namespace muster::simulation {
namespace {

constexpr Duration kFaultyTime = std::chrono::seconds(90);
// The time after the last fault within which the slowest job ends, with its last restarts, their
// back-off, and leases.
constexpr Duration kCalmTime = std::chrono::seconds(1'500);
// Messages that were sent before the last fault may be late by the longest outage of the
// coordinator's network or stall of the coordinator.
constexpr Duration kLatestNews = std::chrono::seconds(60);
// The maximum number of smaller sizes of a job (coordinator/core/queue/validation.cc).
constexpr size_t kSizesMax = 16;
constexpr size_t kLogLinesMax = 400;
// The maximum number of events at one instant. A busy instant has some dozens of events.
constexpr int kEventsAtOnceMax = 10'000;

}  // namespace

World::World(uint64_t world_seed, int workers, const std::set<int>* kept, bool logs, Faults faults)
    : seed(world_seed),
      random(world_seed),
      sweeps(~world_seed),
      network(scheduler, random),
      trainers(scheduler, random, network),
      coordinator(*this),
      invariants(*this),
      kept_(kept),
      logs_(logs),
      is_replayed_(logs || world_seed % 4 == 0 ||
                   std::getenv("MUSTER_SIMULATION_SEEDS") != nullptr),
      faults_(faults) {
  core_options.version = "simulated";
  core_options.worker_lease = std::chrono::seconds(6);
  core_options.start_budget = std::chrono::seconds(20);
  core_options.hang.first_steps = std::chrono::seconds(30);
  core_options.reaped_within = std::chrono::seconds(4);
  core_options.torn_down_within = std::chrono::seconds(6);
  core_options.full_size_wait = std::chrono::seconds(2);
  core_options.grow_stable = std::chrono::seconds(3);
  core_options.grow_after = std::chrono::seconds(5);
  core_options.grow_grace = std::chrono::seconds(8);
  // All jobs are judged after outages.
  if (random.chance(0.5) && faults == Faults::kAll) core_options.finished_jobs_max = 2;
  // So few heartbeats per second that workers send them less often, and have longer leases. Outages
  // would be noticed later than the end of a start's budget.
  if (random.chance(0.3) && faults == Faults::kAll)
    core_options.heartbeat_budget = 1 + static_cast<int64_t>(random.below(8));
  const int drawn = 2 + static_cast<int>(random.below(4));
  const int hosts = workers > 0 ? workers : drawn;
  for (int host = 0; host < hosts; ++host) {
    workers_.push_back(
        std::make_unique<FakeWorker>(*this, host, 1 + static_cast<int32_t>(random.below(4))));
  }
  submissions_left_ = 3 + static_cast<int>(random.below(8));
  if (faults == Faults::kAll) return;
  faults_on = false;
  network.stop_faults();
  trainers.stop_crashing();
}

void World::note(std::string line) {
  if (!logs_) return;
  log_.push_back(absl::StrFormat("%9.3f %s", to_seconds(scheduler.now().time_since_epoch()), line));
  if (log_.size() > kLogLinesMax) log_.pop_front();
}

void World::fail(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

std::string World::run() {
  coordinator.boot();
  for (const auto& worker : workers_) worker->boot();
  submit_later();
  fault_later();
  if (faults_ == Faults::kAll) sweep_later();
  const Instant calm = scheduler.now() + kFaultyTime;
  bool good = run_until(calm);
  faults_on = false;
  calm_ = scheduler.now();
  if (faults_ == Faults::kAll) network.end_partitions();  // else the last outage takes its time
  network.stop_faults();
  trainers.stop_crashing();
  note("---- the faults stop ----");
  if (good) good = run_until(calm + kLatestNews);
  calm_ = scheduler.now();
  trainers.hang_again();
  if (good) good = run_until(calm + kCalmTime);
  if (problem_.empty() && !everything_ended())
    fail("a job, or a process of one, did not reach an end");
  if (problem_.empty()) judge_hangs();
  if (problem_.empty() && coordinator.is_up()) problem_ = coordinator.replay();
  totals_.saved_on_request = trainers.saved_on_request();
  totals_.left_together = trainers.left_together();
  totals_.cut_launches = trainers.cut_launches();
  totals_.stuck = trainers.stuck();
  totals_.left_stuck = trainers.left_stuck();
  totals_.exclusions = coordinator.exclusions();
  totals_.unread = coordinator.unread();
  totals_.stale_events = coordinator.stale_events();
  totals_.last_resorts = invariants.last_resorts();
  totals_.smaller = invariants.smaller_attempts();
  totals_.updates = invariants.updates();
  totals_.rollbacks = invariants.rollbacks();
  totals_.planned = invariants.planned();
  totals_.saved_as_planned = invariants.saved_as_planned();
  totals_.with_spares = invariants.attempts_on_spares();
  if (problem_.empty()) {
    for (const auto& [id, job] : coordinator.core().jobs()) {
      ++totals_.jobs;
      totals_.succeeded += job.state == coordinator::JobState::kSucceeded;
      totals_.failed += job.state == coordinator::JobState::kFailed;
      totals_.cancelled += job.state == coordinator::JobState::kCancelled;
      totals_.attempts += static_cast<int>(job.attempt.value());
      totals_.grown += job.resizes;
    }
    return "";
  }
  std::string text = absl::StrCat("seed ", seed, ": ", problem_, "\n", replay_command());
  for (const auto& [id, job] : coordinator.disk()) {
    absl::StrAppend(&text, "  job ", id.value(), " attempt ", job.attempt.value(), " ",
                    av(job_state_name(job.state)), ": ", job.reason, "\n");
  }
  for (const std::string& line : log_) absl::StrAppend(&text, line, "\n");
  return text;
}

bool World::is_kept() {
  const int number = disturbances_++;
  return kept_ == nullptr || kept_->contains(number);
}

std::string World::replay_command() const {
  const std::string kept =
      kept_ == nullptr ? "" : absl::StrCat(" MUSTER_SIMULATION_KEPT=", absl::StrJoin(*kept_, ","));
  return absl::StrCat(
      "replay: ", faults_ == Faults::kAll ? "" : "MUSTER_SIMULATION_FAULTS=outages ",
      "MUSTER_SIMULATION_SEED=", seed, " MUSTER_SIMULATION_WORKERS=", workers_.size(), kept,
      " muster_simulation --gtest_filter=*OneSeed*\n");
}

// Judges hangs that began after all other faults stopped: each is found in time, and names the rank
// that hung.
void World::judge_hangs() {
  // From the hang to the verdict with stacks: three steps and three seconds, a heartbeat, and
  // message delays.
  constexpr Duration kBound = std::chrono::milliseconds(3'400);
  // A small heartbeat budget makes workers report less often. The last step reaches the coordinator
  // with one heartbeat, and a suspicion waits for another one of each worker.
  const Duration later =
      2 * (coordinator.core().pace().busy - core_options.heartbeat_interval / kBusyHeartbeats);
  for (const auto& [id, incident] : coordinator.disk_incidents()) {
    ++totals_.incidents;
    totals_.slow_ranks += incident.kind == coordinator::IncidentKind::kSlowRank;
  }
  for (const HangTruth& hang : trainers.hangs()) {
    ++totals_.hangs;
    if (hang.began < calm_ || hang.store != coordinator.store()) continue;
    const coordinator::Incident* found = nullptr;
    for (const auto& [id, incident] : coordinator.disk_incidents()) {
      const bool is_it = incident.job == hang.job && incident.attempt == hang.attempt &&
                         incident.kind == coordinator::IncidentKind::kHang;
      if (is_it) found = &incident;
    }
    const std::string what = absl::StrCat("the hang of rank ", hang.rank.value(), " in job ",
                                          hang.job.value(), " attempt ", hang.attempt.value());
    const auto job = coordinator.core().jobs().find(hang.job);
    if (found == nullptr && job != coordinator.core().jobs().end() && job->second.cancel_requested)
      continue;
    if (found == nullptr && job == coordinator.core().jobs().end()) continue;  // forgotten
    if (found == nullptr && invariants.has_grown({hang.job, hang.attempt})) continue;
    // The time limit may end the attempt before the verdict.
    if (found == nullptr && job->second.attempt == hang.attempt &&
        job->second.exit_code == kTimeLimitExitCode)
      continue;
    if (found == nullptr) return fail(what + " was not found");
    require(!found->suspects.empty() && found->suspects.front().rank == hang.rank, what,
            " is blamed otherwise: ", found->sentence);
    const auto verdict =
        std::find_if(found->moments.begin(), found->moments.end(),
                     [](const auto& moment) { return moment.text.rfind("verdict: ", 0) == 0; });
    if (verdict == found->moments.end()) return fail(what + " has no verdict");
    const Duration took(verdict->unix_ns - scheduler.unix_ns() -
                        (hang.began - scheduler.now()).count());
    // The duration of steps is unknown before the launch has completed some.
    const bool learned = hang.steps > 4 && hang.pause == Duration::zero();
    const Duration known =
        learned ? 3 * hang.longest_step : core_options.hang.first_steps + hang.pause;
    require(took <= known + kBound + later, what, " was found after ", to_seconds(took),
            " s; its steps take ", to_seconds(hang.longest_step));
    ++totals_.hangs_named;
  }
}

bool World::run_until(Instant end) {
  Instant before = scheduler.now();
  int at_once = 0;
  while (problem_.empty() && scheduler.run_next(end)) {
    at_once = scheduler.now() == before ? at_once + 1 : 0;
    before = scheduler.now();
    if (at_once > kEventsAtOnceMax)
      fail("time does not advance: a task requests an immediate wake-up without end");
    if (!faults_on && everything_ended()) return true;
  }
  return problem_.empty();
}

bool World::everything_ended() const {
  if (submissions_left_ > 0 || submissions_open_ > 0 || !coordinator.is_up()) return false;
  for (const auto& [id, job] : coordinator.core().jobs()) {
    if (!coordinator::is_terminal(job.state)) return false;
  }
  for (const auto& worker : workers_) {
    if (worker->has_copies_of(coordinator.store())) return false;
  }
  return trainers.processes().empty();  // includes those of lost attempts and of lost disks
}

void World::submit_later() {
  if (submissions_left_ == 0) return;
  --submissions_left_;
  ++submissions_open_;
  scheduler.after(random.between_ms(0, 12'000), [this] {
    if (!is_kept()) {
      --submissions_open_;
      submit_later();
      return;
    }
    JobSpec spec;
    spec.name.assign(1, 'j');
    spec.output_directory = absl::StrCat("/out/", next_request_);
    // The job never requires more than the complete fleet has.
    const FakeWorker& some = *workers_[random.below(workers_.size())];
    spec.ranks_per_node =
        1 + static_cast<int32_t>(random.below(static_cast<uint64_t>(some.slots())));
    int32_t large_enough = 0;
    for (const auto& worker : workers_) large_enough += worker->slots() >= spec.ranks_per_node;
    spec.nodes = 1 + static_cast<int32_t>(random.below(static_cast<uint64_t>(large_enough)));
    spec.priority = static_cast<int32_t>(random.below(3));
    spec.restarts_max = static_cast<int32_t>(random.below(6));
    // None, one each, or a slot's share, which is also one.
    spec.gpus_per_rank = static_cast<int32_t>(next_request_ % 3) - 1;
    draw_sizes(spec);
    draw_queueing(spec);
    natures_.emplace(spec.output_directory, draw_nature(spec));
    try_submit(absl::StrCat("request-", next_request_++), spec);
    submit_later();
  });
}

void World::draw_sizes(JobSpec& spec) {
  if (random.chance(0.3)) spec.spares = 1 + static_cast<int32_t>(random.below(2));
  if (spec.nodes == 1 || random.chance(0.4)) return;
  spec.min_nodes = 1 + static_cast<int32_t>(random.below(static_cast<uint64_t>(spec.nodes - 1)));
  for (int32_t nodes = spec.nodes - 1; nodes >= spec.min_nodes; --nodes) {
    const bool is_drawn = nodes == spec.min_nodes || random.chance(0.7);
    if (is_drawn && (nodes == spec.min_nodes || spec.smaller.size() + 1 < kSizesMax))
      spec.smaller.push_back({nodes, absl::StrCat(nodes)});
  }
}

JobNature World::draw_nature(const JobSpec& spec) {
  JobNature nature;
  nature.steps = 5 + static_cast<int64_t>(random.below(60));
  nature.step_time = random.between_ms(50, 600);
  if (random.chance(0.4)) {
    nature.pause_every = 4 + static_cast<int64_t>(random.below(8));
    nature.pause = random.between_ms(1'000, 20'000);
  }
  if (faults_ == Faults::kOutages) return nature;
  if (random.chance(0.05)) {
    nature.bad_input_rank =
        static_cast<int32_t>(random.below(static_cast<uint64_t>(spec.world_size())));
  }
  if (random.chance(0.05)) nature.nan_step = 3;
  if (random.chance(0.3)) nature.crash_per_step = 0.02;
  if (random.chance(0.3)) {
    constexpr std::array<Hang, 4> kHangs = {Hang::kStopped, Hang::kSkips, Hang::kLoops,
                                            Hang::kSleeps};
    nature.hang = kHangs[random.below(kHangs.size())];
    // If one of two ranks enters another collective, no page reveals which one is right.
    const int32_t fewest = coordinator::smallest_size(spec) * spec.ranks_per_node;
    if (fewest <= 2 && nature.hang == Hang::kSkips) nature.hang = Hang::kSleeps;
    nature.hang_step = 6 + static_cast<int64_t>(random.below(20));
    nature.hang_rank = static_cast<int32_t>(random.below(static_cast<uint64_t>(spec.world_size())));
  }
  if (random.chance(0.2)) {
    nature.slow_rank = static_cast<int32_t>(random.below(static_cast<uint64_t>(spec.world_size())));
    nature.slow_factor = 1.6;
  }
  if (random.chance(0.3)) nature.growth = 1.03;
  return nature;
}

// Repeats the request until it is answered, which its request id permits.
void World::try_submit(const std::string& request_id, const JobSpec& spec) {
  if (answered_.contains(request_id)) return;
  coordinator.submit(request_id, spec, [=, this](const coordinator::Reply& reply) {
    // The jobs on which it depends may have ended, or be lost with the coordinator's disk.
    const bool is_late = !spec.dependencies.empty() && !reply.status.ok() &&
                         reply.status.message().find("spec.dependencies") != std::string::npos;
    require(reply.status.ok() || is_late, "refused: ", reply.status.ToString());
    if (!is_late) invariants.note_confirmed(reply.job, request_id);
    if (!answered_.insert(request_id).second) return;  // a repeated request was answered as well
    --submissions_open_;
    if (is_late) return;
    plan_requests(reply.job);
    if (random.chance(0.2)) {  // the answer was lost: the caller repeats the request
      coordinator.submit(request_id, spec, [=, this](const coordinator::Reply& again) {
        require(again.status.ok(), "a repeated submission was refused");
        invariants.note_confirmed(again.job, request_id);
      });
    }
  });
  scheduler.after(std::chrono::milliseconds(700), [=, this] { try_submit(request_id, spec); });
}

void World::give_nature(JobId job, const JobSpec& spec) {
  trainers.set_nature({coordinator.store(), job}, natures_.at(spec.output_directory));
}

void World::fault_later() {
  // The workers connect again before the next outage.
  const Duration delay = faults_ == Faults::kOutages
                             ? std::max(Duration::zero(), outage_until_ - scheduler.now()) +
                                   random.between_ms(6'000, 20'000)
                             : random.between_ms(200, 6'000);
  scheduler.after(delay, [this] {
    if (calm_ != Instant{}) return;
    if (is_kept()) make_a_fault();
    fault_later();
  });
}

void World::exclude_a_node(const WorkerName& name) {
  const Duration time = random.between_ms(1'000, 60'000);
  const Duration drained_in = std::min<Duration>(time, random.between_ms(1'000, 30'000));
  coordinator.exclude(name, time, random.chance(0.5) ? std::optional(drained_in) : std::nullopt);
}

void World::make_a_fault() {
  if (faults_ == Faults::kOutages) return make_an_outage();
  const int host = static_cast<int>(random.below(workers_.size()));
  switch (random.below(12)) {
    case 11:
      return make_an_outage();
    case 0:
      ++totals_.crashes;
      if (random.chance(0.2)) return coordinator.crash_and_lose_disk(random.between_ms(10, 9'000));
      return coordinator.crash(random.between_ms(10, 9'000));
    case 1:
      ++totals_.crashes;
      // Sometimes for longer than the coordinator waits.
      return worker(host).crash(random.chance(0.3) ? random.between_ms(12'000, 60'000)
                                                   : random.between_ms(100, 12'000));
    case 2:
      return worker(host).request_shutdown();
    case 3:
      note(absl::StrCat("node", host, " is parted"));
      return network.partition(host, random.between_ms(500, 15'000));
    case 4:
    case 5:
      note(absl::StrCat("the stream of node", host, " is cut"));
      return network.cut_one_of(host);
    case 6:
      return coordinator.stall(random.between_ms(100, 15'000));
    case 7:
      if (random.chance(0.5)) return coordinator.admit(worker(host).name());
      note(absl::StrCat("someone excludes node", host));
      return exclude_a_node(worker(host).name());
    case 8: {
      const int other = static_cast<int>(random.below(workers_.size()));
      if (other == host) return;
      note(absl::StrCat("the link of node", host, " and node", other, " is cut"));
      return network.cut_link(host, other, random.between_ms(500, 60'000));
    }
    default:
      note("kill -9 of a rank");
      return trainers.kill_one();
  }
}

}  // namespace muster::simulation

// Properties that tests/scenarios does not cover: totality and determinism of the core.
#include "coordinator/core/core.h"

#include <random>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

CoreOptions options() {
  CoreOptions o;
  o.version = "1";
  return o;
}

// Returns a random event with random jobs, ranks and workers.
Event random_event(std::mt19937_64& random) {
  const auto below = [&random](uint64_t n) { return random() % n; };
  const WorkerName worker(absl::StrCat("n", below(3)));
  const Incarnation incarnation(below(3));
  const JobId job(below(4));
  const Attempt attempt(static_cast<uint32_t>(below(3)));
  const Rank rank(static_cast<int32_t>(below(6)) - 1);
  switch (below(13)) {
    case 0: {
      JobSpec spec;
      if (below(8) != 0) spec.name.assign(1, 'j');
      spec.nodes = static_cast<int32_t>(below(3));
      spec.ranks_per_node = static_cast<int32_t>(below(4));
      spec.restarts_max = static_cast<int32_t>(below(3));
      spec.output_directory = absl::StrCat("/", below(20));
      if (below(3) == 0) {
        spec.command.emplace_back("x");
        spec.working_directory.assign(1, '/');
      }
      return JobSubmitted{RequestToken(random()), absl::StrCat(below(9)), spec, 1};
    }
    case 1:
      return JobCancelRequested{RequestToken(random()), job, below(2) == 0, 1};
    case 2: {
      WorkerRegistered event{worker,
                             incarnation,
                             below(9) == 0 ? "2" : "1",
                             "h",
                             static_cast<int32_t>(below(4)),
                             "h:1",
                             {12'000, static_cast<int32_t>(below(3))},
                             {below(2) == 0 ? "" : "s.l", below(2) == 0 ? "" : "d"},
                             StoreId(below(2)),
                             {},
                             std::nullopt,
                             1};
      if (below(4) == 0) event.leaving = std::chrono::seconds(below(3));
      if (below(2) == 0) event.running.push_back({job, attempt, rank, 5});
      return event;
    }
    case 3:
      return WorkerDisconnected{worker, incarnation, 1};
    case 4: {
      HeartbeatReceived event{worker, incarnation, {}, 1};
      RankProgress progress;
      progress.job = job;
      progress.attempt = attempt;
      progress.rank = rank;
      progress.phase = static_cast<Phase>(below(12));
      progress.phase_age = Duration(static_cast<int64_t>(random() % 10'000'000'000));
      progress.last_progress_age = Duration(static_cast<int64_t>(random() % 10'000'000'000));
      progress.step = static_cast<int64_t>(below(50)) - 1;
      progress.step_seconds = static_cast<double>(below(3));
      progress.step_times.counts[below(16)] = below(60);
      progress.step_times.seconds = static_cast<double>(below(60));
      if (below(2) == 0) event.ranks.push_back(progress);
      return event;
    }
    case 5: {
      const int32_t codes[] = {0, 0, 0, 1, 2, 3, 75, 76, -1};
      const int32_t code = codes[below(9)];
      return RankExited{worker, incarnation,      random(), job, attempt, rank,
                        code,   code < 0 ? 9 : 0, 3,        "x", 1};
    }
    case 6:
      return StacksRequested{RequestToken(random()), job, rank, 1};
    case 7: {
      StackReportReceived event;
      event.worker = worker;
      event.incarnation = incarnation;
      event.dump = DumpId(below(40));
      event.job = job;
      event.attempt = attempt;
      event.sample = static_cast<int32_t>(below(4)) - 1;
      StackSample sample;
      sample.modules.push_back({"ab", "/m"});
      RankStacks& stacks = sample.ranks.emplace_back();
      stacks.rank = rank.value();
      ThreadStack& thread = stacks.threads.emplace_back();
      thread.name = "main";
      thread.frames = {{kNoModule, 0, "main"}, {0, below(3), ""}};
      event.stacks.add(sample);
      event.ranks.emplace_back().rank = rank.value();
      return event;
    }
    case 8: {
      SymbolsReceived event;
      event.worker = worker;
      event.incarnation = incarnation;
      event.dump = DumpId(below(40));
      event.module = {"ab", "/m"};
      event.symbols = {{below(3), {"f()", "f.cc", 3}}};
      return event;
    }
    case 9:
      return WorkerLeaving{worker, incarnation, std::chrono::seconds(below(3)), 1};
    case 10: {
      NodeSweepRequested event;
      event.token = RequestToken(random());
      if (below(2) == 0) event.workers.push_back(worker);
      event.unix_ns = 1;
      return event;
    }
    case 11: {
      NodeChecked event;
      event.worker = worker;
      event.incarnation = incarnation;
      event.check = below(60);
      event.result.passed = below(4) != 0;
      event.unix_ns = 1;
      if (below(4) != 0) event.deep.emplace().stopped = below(4) == 0;
      return event;
    }
    default:
      return Tick{1};
  }
}

TEST(Core, IsTotalAndItsDeadlinesAreServed) {
  std::mt19937_64 random(7);
  Core core(options(), {}, Instant{});
  Instant now{};
  ActionList actions;
  for (int i = 0; i < 50'000; ++i) {
    now += Duration(static_cast<int64_t>(random() % 1'000'000'000));
    actions.clear();
    core.step(random_event(random), now, actions);
    core.step(Tick{1}, now, actions);
    // No deadline that a Tick could have handled may be left: the shell would spin.
    if (const auto next = core.next_deadline()) {
      ASSERT_GT(*next, now) << "after event " << i;
    }
    for (const auto& [id, job] : core.jobs()) {
      ASSERT_FALSE(job.reason.empty());
      ASSERT_LE(job.faults.size(), kFaultsKeptMax);
      ASSERT_EQ(is_live(job.state), !job.ranks.empty() && is_live(job.state));
    }
  }
}

TEST(Core, GivesEachSubmissionItsReplyInTheSameStep) {
  Core core(options(), {}, Instant{});
  ActionList actions;
  JobSpec spec;
  spec.name = "j";
  spec.output_directory.assign(1, '/');
  core.step(JobSubmitted{RequestToken(41), "id", spec, 5}, Instant{}, actions);
  ASSERT_EQ(actions.size(), 5U);
  EXPECT_TRUE(std::holds_alternative<PersistJob>(actions[0]));
  EXPECT_EQ(std::get<PersistLastJobId>(actions[1]).job, JobId(1));
  EXPECT_TRUE(std::holds_alternative<PersistRequestId>(actions[2]));
  EXPECT_EQ(std::get<Reply>(actions[3]).token, RequestToken(41));
  EXPECT_EQ(std::get<Reply>(actions[3]).job, JobId(1));
  EXPECT_TRUE(std::holds_alternative<JobChanged>(actions[4]));
  EXPECT_EQ(core.jobs().at(JobId(1)).submitted_unix_ns, 5);
}

// A store may contain a cancelled job in RESTARTING without recorded faults.
TEST(Core, TakesUpARestartWithoutAFault) {
  Job job;
  job.id = JobId(1);
  job.spec.name = "j";
  job.state = JobState::kRestarting;
  job.attempt = Attempt(1);
  job.cancel_requested = true;
  job.placement = {{Rank(0), WorkerName("w"), 0, Incarnation(1)}};
  DurableState state;
  state.jobs = {job};
  const Core core(CoreOptions{}, std::move(state), instant_from_ns(1));
  EXPECT_EQ(core.jobs().at(JobId(1)).state, JobState::kRestarting);
}

// A coordinator without workers waits only for the queue's own deadlines: long gaps between its
// Ticks are not stalls, and must not postpone these deadlines.
TEST(Core, IdleTimeDoesNotPostponeTheDeadlinesOfTheQueue) {
  Job job;
  job.id = JobId(1);
  job.spec.name = "j";
  job.spec.nodes = 2;
  job.attempt = Attempt(1);
  job.previous_nodes = {WorkerName("a"), WorkerName("b")};
  job.faults.emplace_back().exit_code = 1;
  DurableState state;
  state.jobs = {job};
  const Instant start = instant_from_ns(1);
  Core core(options(), std::move(state), start);
  Instant now = start;
  ActionList actions;
  for (int ticks = 0; ticks < 10 && core.next_deadline(); ++ticks) {
    now = *core.next_deadline();
    core.step(Tick{1}, now, actions);
  }
  EXPECT_FALSE(core.next_deadline());
  EXPECT_EQ(now, start + options().worker_lease + options().reservation_time);
}

// While the core waits for a worker, a Tick is due within a heartbeat interval: a longer gap is a
// stall, which does not count against the worker.
TEST(Core, AStallPostponesTheLeasesOfWorkers) {
  Core core(options(), {}, Instant{});
  ActionList actions;
  WorkerRegistered event;
  event.worker = WorkerName("w");
  event.version = "1";
  event.host = "h";
  event.slots = 1;
  event.rendezvous_address = "h:1";
  core.step(event, Instant{}, actions);
  ASSERT_EQ(core.workers().size(), 1U);
  core.step(Tick{1}, Instant{} + 2 * options().worker_lease, actions);
  EXPECT_EQ(core.workers().size(), 1U);
}

TEST(Core, KeepsTheEnvironmentsValuesOnlyWhileTheJobMayRun) {
  Core core(options(), {}, Instant{});
  ActionList actions;
  JobSpec spec;
  spec.name = "j";
  spec.output_directory.assign(1, '/');
  spec.environment["TOKEN"] = "hunter2";
  core.step(JobSubmitted{RequestToken(1), "", spec, 5}, Instant{}, actions);
  const auto stored = [&] { return durable(core.jobs().at(std::get<PersistJob>(actions[0]).job)); };
  EXPECT_EQ(stored().spec.environment.at("TOKEN"), "hunter2");
  actions.clear();
  core.step(JobCancelRequested{RequestToken(2), JobId(1), false, 6}, Instant{}, actions);
  const Job ended = stored();
  EXPECT_EQ(ended.state, JobState::kCancelled);
  EXPECT_EQ(ended.spec.environment.at("TOKEN"), "");
}

}  // namespace
}  // namespace muster::coordinator

// The work of the core for large jobs, large fleets and long queues: what grows with them, and what
// must not.
#include <gmock/gmock.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {
namespace {

constexpr int32_t kSlots = 8;

WorkerName worker(int32_t i) { return WorkerName(absl::StrCat("n", i)); }

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class LargeJob : public testing::Test {
 protected:
  LargeJob() : core_(options(), {}, now_) {}

  static CoreOptions options() {
    CoreOptions o;
    o.version = "1";
    return o;
  }

  WorkerRegistered registration(int32_t i) const {
    return {worker(i), Incarnation(1), "1", "h", kSlots, "h:1", {}, {}, {}, {}, {}, 1};
  }

  JobSubmitted submission(int32_t nodes) {
    JobSpec spec;
    spec.name.assign(1, 'j');
    spec.nodes = nodes;
    spec.ranks_per_node = kSlots;
    spec.restarts_max = 3;
    spec.output_directory = absl::StrCat("/", ++submitted_);
    return {RequestToken(static_cast<uint64_t>(submitted_)), "", spec, 1};
  }

  // Processes the events as the shell does that receives them at one time.
  void take(const Event& event) { core_.take(event, now_, actions_); }
  ActionList end_turn() {
    core_.place_jobs(actions_);
    return std::exchange(actions_, {});
  }
  ActionList step(const Event& event) {
    take(event);
    return end_turn();
  }

  void register_workers(int32_t count) {
    for (int32_t i = 0; i < count; ++i) take(registration(i));
    end_turn();
  }

  HeartbeatReceived heartbeat(const Job& job, int32_t node) const {
    HeartbeatReceived event{worker(node), Incarnation(1), {}, 1};
    for (int32_t local = 0; local < kSlots; ++local) {
      RankProgress& progress = event.ranks.emplace_back();
      progress.job = job.id;
      progress.attempt = job.attempt;
      progress.rank = Rank(node * kSlots + local);
      progress.pid = 1;
      progress.phase = Phase::kStep;
    }
    return event;
  }

  RankExited exit(const Job& job, int32_t rank, int32_t signal, bool ordered) {
    RankExited event;
    event.worker = worker(rank / kSlots);
    event.incarnation = Incarnation(1);
    event.report_id = ++reports_;
    event.job = job.id;
    event.attempt = job.attempt;
    event.rank = Rank(rank);
    event.exit_code = -1;
    event.signal = signal;
    event.unix_ns = 1;
    event.stop_ordered = ordered;
    return event;
  }

  const Job& job(uint64_t id) const { return core_.jobs().at(JobId(id)); }

  Instant now_ = Instant(std::chrono::hours(1));
  Core core_;
  ActionList actions_;
  int32_t submitted_ = 0;
  uint64_t reports_ = 0;
};

template <class A>
size_t count(const ActionList& actions) {
  return static_cast<size_t>(std::ranges::count_if(
      actions, [](const Action& action) { return std::holds_alternative<A>(action); }));
}

// Returns the number of ranks that messages of type M name.
template <class M>
size_t ranks_of(const ActionList& actions) {
  size_t ranks = 0;
  for (const Action& action : actions) {
    const auto* send = std::get_if<SendToWorker>(&action);
    const auto* message = send == nullptr ? nullptr : std::get_if<M>(&send->payload);
    if (message != nullptr) ranks += message->ranks.size();
  }
  return ranks;
}

// A job of 100,000 ranks starts, loses a rank, starts again and is cancelled. The time of a core
// that visits all ranks for each rank, or all ranks for each worker, is above 100 s.
TEST_F(LargeJob, ItsRanksStartAndEndInLinearTime) {
  constexpr int32_t kNodes = 10'000;
  constexpr int32_t kRanks = kNodes * kSlots;
  const double before = cpu_seconds();
  register_workers(kNodes);
  for (uint32_t attempt = 1; attempt <= 2; ++attempt) {
    const ActionList started = attempt == 1 ? step(submission(kNodes)) : step(Tick{1});
    if (attempt == 1) {
      EXPECT_EQ(ranks_of<SendStartRanks>(started), size_t{kRanks});
    }
    for (int32_t node = 0; node < kNodes; ++node) take(heartbeat(job(1), node));
    end_turn();
    ASSERT_EQ(job(1).state, JobState::kRunning);
    ASSERT_EQ(job(1).attempt, Attempt(attempt));

    // The order to stop has each remaining rank once.
    const ActionList stopped = attempt == 1
                                   ? step(exit(job(1), 0, 9, false))
                                   : step(JobCancelRequested{RequestToken(99), JobId(1), false, 1});
    EXPECT_EQ(ranks_of<SendStopRanks>(stopped), size_t{kRanks} - (attempt == 1 ? 1 : 0));

    // The ends of the ranks store only these ends, until the last one ends the attempt.
    for (int32_t rank = attempt == 1 ? 1 : 0; rank < kRanks - 1; ++rank)
      take(exit(job(1), rank, 15, true));
    const ActionList ended = end_turn();
    EXPECT_EQ(count<PersistExit>(ended), size_t{kRanks} - (attempt == 1 ? 2 : 1));
    EXPECT_EQ(count<PersistJob>(ended), 0U);
    const ActionList last = step(exit(job(1), kRanks - 1, 15, true));
    EXPECT_GT(count<PersistJob>(last), 0U);
    now_ += std::chrono::seconds(5);
  }
  EXPECT_EQ(job(1).state, JobState::kCancelled);
  EXPECT_LT(cpu_seconds() - before, 30);
}

// The orders of an attempt share one copy of its config.
TEST_F(LargeJob, ItsOrdersToStartShareTheSpec) {
  register_workers(3);
  JobSubmitted event = submission(3);
  event.spec.train_config_json = std::string(100'000, ' ');
  std::set<const JobSpec*> specs;
  for (const Action& action : step(event)) {
    if (const auto* send = std::get_if<SendToWorker>(&action))
      if (const auto* start = std::get_if<SendStartRanks>(&send->payload))
        specs.insert(start->spec.get());
  }
  EXPECT_EQ(specs.size(), 1U);
}

// The bytes of a queue are bounded, whatever the number of its jobs.
TEST_F(LargeJob, TheQueueHasAtMostSomeBytes) {
  CoreOptions small = options();
  small.queued_bytes_max = 10'000;
  core_ = Core(small, {}, now_);
  const auto submit = [&](size_t bytes) {
    JobSubmitted event = submission(1);
    event.spec.train_config_json = std::string(bytes, ' ');
    for (const Action& action : step(event))
      if (const auto* reply = std::get_if<Reply>(&action)) return reply->status;
    return absl::UnknownError("no reply");
  };
  EXPECT_TRUE(submit(6'000).ok());
  const absl::Status full = submit(5'000);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("at most 10000"), std::string::npos) << full;
  EXPECT_TRUE(submit(3'000).ok());
  step(JobCancelRequested{RequestToken(99), JobId(1), false, 1});
  EXPECT_TRUE(submit(5'000).ok()) << "the cancelled job does not count";
}

// One pass over the queue follows all events of one time, however many workers register.
TEST_F(LargeJob, AQueuePassFollowsTheLastEventOfATurn) {
  step(submission(2));
  take(registration(0));
  take(registration(1));
  take(submission(1));
  EXPECT_EQ(job(1).state, JobState::kQueued);
  EXPECT_EQ(job(2).state, JobState::kQueued);
  end_turn();
  EXPECT_EQ(job(1).state, JobState::kStarting);
  EXPECT_EQ(job(2).state, JobState::kQueued);
  EXPECT_EQ(core_.workers().size(), 2U);
}

// A worker that is late by as much as its lease is not lost because another worker's message was
// taken from the queue before its own.
TEST_F(LargeJob, NoLeaseEndsBeforeTheMessagesOfTheSameTime) {
  register_workers(2);
  for (int i = 0; i < 10; ++i) {
    now_ += std::chrono::seconds(1);
    take(HeartbeatReceived{worker(1), Incarnation(1), {}, 1});
    if (i < 9) end_turn();
  }
  take(registration(2));
  take(HeartbeatReceived{worker(0), Incarnation(1), {}, 1});
  step(Tick{1});
  EXPECT_TRUE(core_.workers().contains(worker(0)));
  for (int i = 0; i < 10; ++i) {
    now_ += std::chrono::seconds(1);
    for (const int other : {1, 2}) step(HeartbeatReceived{worker(other), Incarnation(1), {}, 1});
    step(Tick{1});
  }
  EXPECT_FALSE(core_.workers().contains(worker(0))) << "its lease is over";
  EXPECT_TRUE(core_.workers().contains(worker(1)));
}

// Ten thousand jobs that cannot fit the fleet cost one examination of the hosts for each shape.
TEST_F(LargeJob, AQueueThatCannotFitCostsLittle) {
  constexpr int32_t kNodes = 2'000;
  constexpr int kJobs = 10'000;
  for (int i = 0; i < kJobs; ++i) take(submission(2 * kNodes + i % 7));
  end_turn();
  const double before = cpu_seconds();
  for (int32_t i = 0; i < kNodes; ++i) {
    take(registration(i));
    if (i % 20 == 0) end_turn();
  }
  EXPECT_EQ(core_.workers().size(), size_t{kNodes});
  EXPECT_EQ(job(kJobs).reason,
            absl::StrCat("waits for ", 2 * kNodes + (kJobs - 1) % 7,
                         " workers with 8 free slots each: fewer are connected"));
  EXPECT_LT(cpu_seconds() - before, 20) << "of 100 passes over 10,000 jobs and up to 2,000 workers";
}

// Ten thousand waiting jobs of many users, teams and arrays, with quotas, dependencies, time limits
// and labels, on a busy fleet: a pass stays linear in the jobs and the hosts.
TEST_F(LargeJob, AQueueWithAPolicyCostsLittle) {
  constexpr int32_t kNodes = 2'000;
  constexpr int kJobs = 10'000;
  QueuePolicy policy;
  policy.user_defaults.max[static_cast<size_t>(QuotaKind::kRunningJobs)] = 50;
  take(QueuePolicyChanged{policy, 1});
  for (int32_t i = 0; i < kNodes; ++i) {
    WorkerRegistered worker = registration(i);
    worker.labels.labels = {{"zone", absl::StrCat(i % 4)}};
    take(worker);
  }
  const auto submit = [&](int32_t nodes, const auto& change) {
    JobSubmitted event = submission(nodes);
    change(event.spec);
    event.caller = unrestricted_caller();
    take(event);
  };
  // Fills half of the fleet, for a known time.
  for (int i = 0; i < 50; ++i) {
    submit(20, [&](JobSpec& spec) {
      spec.user = absl::StrCat("runs", i);
      spec.time_limit_seconds = 3600;
    });
  }
  submit(kNodes, [](JobSpec& spec) { spec.user = "large"; });
  end_turn();
  const auto last = core_.jobs().rbegin()->first;
  EXPECT_EQ(core_.jobs().at(JobId(50)).state, JobState::kStarting);
  EXPECT_THAT(core_.jobs().at(last).reason, testing::HasSubstr("they are busy"));
  for (int i = 51; i < kJobs; ++i) {
    submit(1 + i % 5, [&](JobSpec& spec) {
      spec.user = absl::StrCat("user", i % 100);
      spec.team = absl::StrCat("team", i % 10);
      if (i % 4 == 0) spec.dependencies = {{last}};
      if (i % 4 == 1) spec.time_limit_seconds = 7200;
      if (i % 4 == 2) spec.node_selector = {absl::StrCat("zone=", i % 8)};
      if (i % 4 == 3) spec.array = "a", spec.array_running_max = 1;
    });
  }
  end_turn();
  ASSERT_EQ(core_.jobs().size(), size_t{kJobs});
  EXPECT_EQ(job(3'000).reason, kWaitsBehind);
  EXPECT_THAT(job(kJobs).reason, testing::HasSubstr("waits behind an earlier job for its quota"));
  const double before = cpu_seconds();
  constexpr int kPasses = 20;
  for (int i = 0; i < kPasses; ++i) {
    take(registration(kNodes + i));
    end_turn();
  }
  const double seconds = (cpu_seconds() - before) / kPasses;
  RecordProperty("milliseconds_per_pass", static_cast<int>(seconds * 1e3));
  EXPECT_LT(seconds, 1) << "of a pass over 10,000 jobs and 2,000 workers";
}

// All workers receive the new intervals when the fleet outgrows the budget, and a newcomer receives
// them with its registration.
TEST_F(LargeJob, HeartbeatsFollowTheSizeOfTheFleet) {
  register_workers(3'125);
  const ActionList grown = step(registration(3'125));
  EXPECT_EQ(count<SendToWorker>(grown), 3'126U);
  size_t paces = 0;
  for (const Action& action : grown) {
    const auto& payload = std::get<SendToWorker>(action).payload;
    if (const auto* pace = std::get_if<SendPace>(&payload)) {
      ++paces;
      EXPECT_EQ(pace->busy_interval, std::chrono::milliseconds(500));
    } else {
      EXPECT_EQ(std::get<SendRegistered>(payload).busy_interval, std::chrono::milliseconds(500));
    }
  }
  EXPECT_EQ(paces, 3'125U);
  EXPECT_EQ(count<SendToWorker>(step(registration(3'126))), 1U);
}

}  // namespace
}  // namespace muster::coordinator

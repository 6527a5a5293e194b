#include "coordinator/core/hang/ladder.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A running job with rank 0 on worker a and rank 1 on worker b, whose steps took 0.1 s.
class LadderTest : public testing::Test {
 protected:
  LadderTest() : fleet(options), hang(HangBudgets{}, 2, time.now) {
    job.id = JobId(3);
    job.attempt = Attempt(2);
    job.state = JobState::kRunning;
    for (const int32_t rank : {0, 1}) {
      WorkerRegistered event;
      event.worker = WorkerName(rank == 0 ? "a" : "b");
      event.slots = 1;
      fleet.add(event, time.now);
      job.placement.push_back({Rank(rank), event.worker, 0, Incarnation{}});
      job.ranks.emplace_back().life = RankState::Life::kUp;
      ranks[event.worker].push_back(Rank(rank));
    }
    for (int64_t step = 1; step <= 20; ++step) {
      time.now += milliseconds(100);
      observe_step(step);
    }
    send_heartbeat(WorkerName("a"));
    send_heartbeat(WorkerName("b"));
  }

  void observe_step(int64_t step) {
    for (const size_t rank : {0U, 1U})
      hang.observe(rank,
                   {Phase::kStep, time.now, time.now, step, 0.1, static_cast<uint64_t>(step),
                    0.1 * static_cast<double>(step)},
                   time.now);
  }
  void send_heartbeat(const WorkerName& name) { fleet.at(name).last_heartbeat = time.now; }
  void pass(Duration duration) {
    time.now += duration;
    time.unix_ns += duration.count();
  }
  LadderView view() const { return {job, ranks, unreachable, peer_lost}; }
  LadderContext context() { return {fleet, dumps, incidents, options, time}; }
  std::optional<LadderStep> next(Instant confirmable_at = {}) {
    return ladder.next(view(), confirmable_at, hang, context());
  }
  // Takes the steps up to the dump of a job that stands still.
  void take_dump_steps() {
    pass(seconds(2));
    for (const JobState state : {JobState::kSuspect, JobState::kDumping}) {
      const std::optional<LadderStep> step = next();
      ASSERT_TRUE(step);
      ASSERT_EQ(step->state, state);
      job.state = state;
      for (const char* name : {"a", "b"}) (void)ladder.receive_pages(WorkerName(name));
    }
  }
  // Both ranks wait in a collective that only one of them has entered: `entered`, in both samples.
  Dump dump_with(uint64_t entered_by_0, uint64_t entered_by_1) {
    Dump dump = ladder.take_dump(dumps);
    for (const int32_t sample : {0, 1}) {
      for (const int32_t index : {0, 1}) {
        StackReportReceived report;
        report.worker = WorkerName(index == 0 ? "a" : "b");
        report.dump = DumpId(1);
        report.job = job.id;
        report.attempt = job.attempt;
        report.sample = sample;
        RankEvidence& rank = report.ranks.emplace_back();
        rank.rank = index;
        rank.phase = Phase::kStep;
        rank.step = 20;
        rank.process_state = index == 0 ? 'S' : 'D';
        GroupEvidence& group = rank.groups.emplace_back();
        group.name = "fsdp";
        group.enqueued = group.started = index == 0 ? entered_by_0 : entered_by_1;
        group.completed = 40;
        StackSample stacks;
        RankStacks& read = stacks.ranks.emplace_back();
        read.rank = index;
        ThreadStack& thread = read.threads.emplace_back();
        thread.name = "main";
        thread.frames.push_back({kNoModule, 0, "all_gather"});
        report.stacks.add(stacks);
        EXPECT_TRUE(dump.add(report));
      }
    }
    return dump;
  }

  void evaluate() {
    pass(seconds(1));
    for (const size_t rank : {0U, 1U}) hang.correct(rank, Phase::kEval, seconds(0), 20, time.now);
  }
  // One sample of a rank of a program that waits for no other rank and does nothing.
  StackReportReceived idle_report(DumpId dump, int32_t index, int32_t sample,
                                  int32_t stopped_child = 0) const {
    StackReportReceived report;
    report.worker = WorkerName(index == 0 ? "a" : "b");
    report.dump = dump;
    report.job = job.id;
    report.attempt = job.attempt;
    report.sample = sample;
    RankEvidence& rank = report.ranks.emplace_back();
    rank.rank = index;
    rank.phase = Phase::kEval;
    rank.step = 20;
    rank.process_state = 'S';
    rank.activity = {.is_known = true, .stopped_pid = stopped_child};
    return report;
  }
  // Two samples in which a child of rank 0 is stopped.
  Dump dump_of_stopped_child() {
    Dump dump = ladder.take_dump(dumps);
    for (const int32_t sample : {0, 1}) {
      EXPECT_TRUE(dump.add(idle_report(DumpId(1), 0, sample, 4711)));
      EXPECT_TRUE(dump.add(idle_report(DumpId(1), 1, sample)));
    }
    return dump;
  }
  // Takes a probe in which rank 0 is stopped, and returns whether it proves a hang. `answers`: the
  // workers that answer it.
  bool probe_proves(const std::vector<int32_t>& answers) {
    pass(seconds(100));
    EXPECT_TRUE(next());
    const DumpId id = *ladder.suspicion().probe;
    for (const int32_t index : answers) {
      StackReportReceived report = idle_report(id, index, 0);
      if (index == 0) report.ranks[0].process_state = 'T';
      EXPECT_TRUE(dumps.find(id)->dump.add(report));
    }
    pass(seconds(20));
    ladder.conclude_probe(view(), hang, context());
    EXPECT_FALSE(ladder.suspicion().probe);
    return hang.due() <= time.now;
  }

  CoreOptions options;
  CoreTime time{instant_from_ns(1'000'000'000'000), 1'700'000'000'000'000'000};
  Fleet fleet;
  DumpTable dumps;
  IncidentBook incidents;
  HangDetector hang;
  Job job;
  RanksByWorker ranks;
  std::set<WorkerName> unreachable;
  bool peer_lost = false;
  Ladder ladder;
};

TEST_F(LadderTest, AProbeWithoutAllAnswersProvesNothing) {
  evaluate();
  EXPECT_FALSE(probe_proves({0}));
  EXPECT_TRUE(probe_proves({0, 1}));
}

TEST_F(LadderTest, AProbeProvesNothingIfAWorkerIsUnreachableAtItsEnd) {
  evaluate();
  pass(seconds(100));
  EXPECT_TRUE(next());
  const DumpId id = *ladder.suspicion().probe;
  for (const int32_t index : {0, 1}) {
    StackReportReceived report = idle_report(id, index, 0);
    report.ranks[0].process_state = 'T';
    EXPECT_TRUE(dumps.find(id)->dump.add(report));
  }
  unreachable = {WorkerName("b")};
  ladder.conclude_probe(view(), hang, context());
  EXPECT_GT(hang.due(), time.now);
}

TEST_F(LadderTest, AStoppedChildCountsOnlyAfterTwiceTheLongestPause) {
  pass(seconds(20));
  observe_step(21);
  observe_step(22);
  const Instant last = time.now;
  take_dump_steps();
  const Dump dump = dump_of_stopped_child();
  const Motion motion = motion_in(dump, {});
  EXPECT_FALSE(proves_hang(dump, {}, motion, hang, last + seconds(39)));
  EXPECT_TRUE(proves_hang(dump, {}, motion, hang, last + seconds(40)));
  job.spec.command = {"python3"};
  const InconclusivePlan plan = inconclusive_plan(job, dump, {}, nullptr, hang, options, time.now);
  EXPECT_EQ(plan.standstill, Standstill::kStoppedChild);
  EXPECT_EQ(plan.until, last + seconds(40));
}

// The program stands still at another step than in the attempt that was ended.
TEST_F(LadderTest, AnAttemptThatWasEndedWithoutAProofGivesLaterOnesMoreTime) {
  job.spec.command = {"python3"};
  const Instant last = hang.last_step_or_phase();
  take_dump_steps();
  const Dump dump = dump_of_stopped_child();
  const auto until = [&] {
    return inconclusive_plan(job, dump, {}, nullptr, hang, options, time.now).until;
  };
  EXPECT_EQ(until(), last + seconds(5));
  job.ended_without_proof = true;
  EXPECT_EQ(until(), last + std::chrono::minutes(10));
}

TEST_F(LadderTest, AJobThatMovesTakesNoStep) {
  EXPECT_FALSE(next());
  pass(milliseconds(500));
  EXPECT_FALSE(next()) << "no longer than its steps may take";
}

TEST_F(LadderTest, AJobThatStandsStillWaitsForPagesAndIsThenDumped) {
  pass(seconds(2));
  send_heartbeat(WorkerName("b"));
  std::optional<LadderStep> step = next();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->state, JobState::kSuspect);
  EXPECT_EQ(step->reason, hang.reason(time.now));
  EXPECT_TRUE(step->messages.empty());
  job.state = step->state;
  EXPECT_FALSE(next()) << "newer pages of worker a may be in flight";
  EXPECT_TRUE(ladder.receive_pages(WorkerName("a")));
  EXPECT_FALSE(ladder.receive_pages(WorkerName("b"))) << "its pages are newer than the standstill";
  step = next();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->state, JobState::kDumping);
  EXPECT_EQ(step->messages.size(), 2U) << "one message for each worker";
  job.state = step->state;
  EXPECT_FALSE(next());
  EXPECT_FALSE(ladder.is_dump_over(view(), {}, context()));
  pass(seconds(60));
  EXPECT_TRUE(ladder.is_dump_over(view(), {}, context())) << "the dump's deadline has passed";
}

TEST_F(LadderTest, ADisconnectedWorkersPagesAreNotAwaited) {
  pass(seconds(2));
  job.state = next()->state;
  EXPECT_TRUE(ladder.receive_pages(WorkerName("a")));
  EXPECT_FALSE(next());
  fleet.at(WorkerName("b")).connected = false;
  const std::optional<LadderStep> step = next();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->state, JobState::kDumping);
  EXPECT_EQ(step->messages.size(), 1U);
}

TEST_F(LadderTest, ASuspectThatMovesRuns) {
  pass(seconds(2));
  job.state = next()->state;
  observe_step(21);
  unreachable.insert(WorkerName("b"));
  EXPECT_FALSE(next()) << "another worker still cannot be reached";
  unreachable.clear();
  const std::optional<LadderStep> step = next();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->state, JobState::kRunning);
  EXPECT_EQ(step->reason, "attempt 2: continues: it makes progress again");
}

TEST_F(LadderTest, ALostPeerIsAwaitedAndNotSuspected) {
  peer_lost = true;
  pass(seconds(2));
  EXPECT_FALSE(next());
}

TEST_F(LadderTest, TheDumpBeginsWhenTheLossMayBeConfirmedAtItsEnd) {
  unreachable.insert(WorkerName("b"));
  pass(seconds(2));
  job.state = next()->state;
  (void)ladder.receive_pages(WorkerName("a"));
  const Instant confirmable = time.now + time_of_dump(options) + milliseconds(1);
  EXPECT_FALSE(next(confirmable));
  pass(milliseconds(1));
  ASSERT_TRUE(next(confirmable));
}

TEST_F(LadderTest, ADumpWaitsForALossThatMayBeConfirmedSoon) {
  unreachable.insert(WorkerName("b"));
  take_dump_steps();
  fleet.at(WorkerName("a")).connected = false;  // nothing more arrives
  EXPECT_TRUE(ladder.is_dump_over(view(), time.now, context()));
  EXPECT_FALSE(ladder.is_dump_over(view(), time.now + milliseconds(1), context()));
  EXPECT_TRUE(ladder.is_dump_over(view(), time.now + seconds(60), context())) << "too late";
}

TEST_F(LadderTest, OnlyASuspicionOfUnreachableWorkersEndsWhenTheyAreBack) {
  EXPECT_FALSE(ladder.resume_reachable(job, "worker b is reachable again", dumps));
  (void)ladder.suspect(view(), "worker b cannot be reached", hang, context());
  job.state = JobState::kSuspect;
  const auto step = ladder.resume_reachable(job, "worker b is reachable again", dumps);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->state, JobState::kRunning);
  EXPECT_EQ(step->reason, "attempt 2: continues: worker b is reachable again");
}

TEST_F(LadderTest, LeavingDropsTheDump) {
  take_dump_steps();
  EXPECT_NE(dumps.find(DumpId(1)), nullptr);
  const LadderStep step = ladder.leave(job, dumps);
  EXPECT_EQ(step.state, JobState::kRunning);
  EXPECT_EQ(step.reason, "");
  EXPECT_EQ(dumps.find(DumpId(1)), nullptr);
  job.state = JobState::kRestarting;
  EXPECT_EQ(ladder.leave(job, dumps).state, JobState::kRestarting);
}

TEST_F(LadderTest, ARankThatWaitsForNoOtherIsInconclusiveAndThenStuck) {
  take_dump_steps();
  const Dump dump = dump_with(41, 40);
  const std::optional<LadderStep> step = ladder.conclude(view(), dump, {}, hang, context());
  ASSERT_TRUE(step) << "rank 1 may only be slow";
  EXPECT_EQ(step->state, JobState::kSuspect);
  ASSERT_EQ(incidents.open_of(job.id).size(), 1U) << "the evidence is recorded";
  const IncidentId recorded = incidents.open_of(job.id).front();
  EXPECT_EQ(incidents.find(recorded)->action, step->reason);
  EXPECT_EQ(ladder.suspicion().next_dump, time.now + options.samples_apart);

  job.state = step->state;
  pass(seconds(60));
  EXPECT_FALSE(ladder.conclude(view(), dump, {}, hang, context()))
      << "the time of the inconclusive hang is over";
  std::optional<IncidentId> incident;
  const StuckJob stuck = ladder.judge_stuck(view(), dump, hang, incident, context());
  EXPECT_EQ(incident, recorded);
  EXPECT_EQ(incidents.find(recorded)->kind, IncidentKind::kHang);
  EXPECT_EQ(stuck.fault.kind, IncidentKind::kHang);
  EXPECT_EQ(stuck.fault.rank, Rank(1));
  EXPECT_EQ(stuck.fault.worker, WorkerName("b"));
  EXPECT_EQ(stuck.fault.message, "hang: " + incidents.find(recorded)->sentence);
  ASSERT_TRUE(stuck.node) << "its process is in D state";
  EXPECT_EQ(stuck.node->suspicion, Suspicion::kStuck);
}

TEST_F(LadderTest, ProgressDuringTheDumpEndsTheSuspicion) {
  take_dump_steps();
  const Dump dump = dump_with(41, 40);
  observe_step(22);
  const auto step = ladder.conclude(view(), dump, {}, hang, context());
  ASSERT_TRUE(step);
  EXPECT_EQ(step->state, JobState::kRunning);
  EXPECT_EQ(step->reason, "attempt 2: continues: it made progress while its stacks were read");
  EXPECT_TRUE(incidents.open_of(job.id).empty());
}

}  // namespace
}  // namespace muster::coordinator

#include "coordinator/core/attempt/attempt_table.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::seconds;

class AttemptTableTest : public testing::Test {
 protected:
  AttemptTableTest() {
    Job fresh;
    fresh.id = JobId(1);
    fresh.attempt = Attempt(1);
    fresh.state = JobState::kStarting;
    for (const int32_t rank : {0, 1})
      fresh.placement.push_back({Rank(rank), WorkerName(rank == 0 ? "a" : "b"), 0, Incarnation{}});
    fresh.ranks.assign(2, RankState{});
    job = &jobs.restore(std::move(fresh));
  }

  CoreOptions options;
  Instant now = instant_from_ns(1'000'000'000'000);
  JobTable jobs;
  Job* job;
  IncidentBook incidents;
  AttemptTable attempts;
};

TEST_F(AttemptTableTest, AnAttemptBeginsWithADeadlineAndEnds) {
  EXPECT_EQ(attempts.find(JobId(1)), nullptr);
  EXPECT_EQ(attempts.unreachable(JobId(1)), nullptr);
  const LiveAttempt& attempt = attempts.begin(*job, options, now);
  EXPECT_EQ(attempts.jobs(), std::vector<JobId>{JobId(1)});
  EXPECT_EQ(attempt.start_deadline, now + options.start_budget);
  EXPECT_EQ(attempts.next_deadline(jobs, Fleet(options), now), now + options.start_budget);
  attempts.excuse(seconds(3), now);
  EXPECT_EQ(attempts.next_deadline(jobs, Fleet(options), now),
            now + options.start_budget + seconds(3));
  attempts.end(*job, incidents);
  EXPECT_TRUE(attempts.jobs().empty());
}

TEST_F(AttemptTableTest, TheTimesOfRanksPassToTheNextAttemptOfTheRevision) {
  Stragglers measured(job->placement.size());
  for (uint64_t step = 1; step <= 40; ++step) {
    for (size_t rank = 0; rank < job->placement.size(); ++rank)
      measured.observe(rank, {.steps = step,
                              .seconds = static_cast<double>(step),
                              .collective_wait = 0.2 * static_cast<double>(step)});
    if (measured.sample_is_due()) measured.evaluate(now);
  }
  const auto knows_times = [&](const LiveAttempt& attempt) {
    return attempt.progress.rank_history.is_known(measured);
  };
  EXPECT_FALSE(knows_times(attempts.begin(*job, options, now)));
  attempts.at(job->id).progress.rank_history.remember(measured);
  attempts.end(*job, incidents);
  EXPECT_TRUE(knows_times(attempts.begin(*job, options, now)));
  attempts.end(*job, incidents);
  ++job->revision;
  EXPECT_FALSE(knows_times(attempts.begin(*job, options, now)));
  attempts.at(job->id).progress.rank_history.remember(measured);
  attempts.end_last(*job, incidents);
  EXPECT_FALSE(knows_times(attempts.begin(*job, options, now)));
}

TEST_F(AttemptTableTest, ARestoredAttemptHasItsExits) {
  job->state = JobState::kDumping;
  job->exits.push_back({Rank(1), to_int(ExitCode::kFailure), 0, 7, ""});
  const LiveAttempt& attempt = attempts.restore(*job, options, now);
  EXPECT_EQ(job->state, JobState::kRunning) << "the earlier samples are not known";
  EXPECT_EQ(job->ranks[1].life, RankState::Life::kExited);
  EXPECT_EQ(job->ranks[0].life, RankState::Life::kAssigned);
  EXPECT_EQ(attempt.victim_deadline, now + options.culprit_wait);
  EXPECT_FALSE(attempt.start_deadline);
}

TEST_F(AttemptTableTest, ARestoredAttemptThatEndsAwaitsNoCulprit) {
  job->state = JobState::kRestarting;
  job->exits.push_back({Rank(1), to_int(ExitCode::kFailure), 0, 7, ""});
  EXPECT_FALSE(attempts.restore(*job, options, now).victim_deadline);
}

TEST_F(AttemptTableTest, ALossIsConfirmedLaterIfNoOtherNodeIsFree) {
  job->spec.restarts_max = 1;
  Fleet fleet(options);
  for (const char* name : {"a", "b"}) {
    WorkerRegistered event;
    event.worker = WorkerName(name);
    event.version = options.version;
    event.slots = 1;
    fleet.add(event, now);
  }
  NodeBook nodes;
  LiveAttempt& attempt = attempts.begin(*job, options, now);
  const CoreTime time{now, 5};
  EXPECT_EQ(attempts.loss_confirmable_at(*job, jobs, fleet, nodes, options, time), Instant{});
  attempt.reach.add(WorkerName("b"), "", 5);
  EXPECT_EQ(attempts.loss_confirmable_at(*job, jobs, fleet, nodes, options, time),
            now + options.unreachable_wait);
  WorkerRegistered spare;
  spare.worker = WorkerName("c");
  spare.version = options.version;
  spare.slots = 1;
  fleet.add(spare, now);
  EXPECT_EQ(attempts.loss_confirmable_at(*job, jobs, fleet, nodes, options, time),
            now + options.unreachable_confirm);
}

}  // namespace
}  // namespace muster::coordinator

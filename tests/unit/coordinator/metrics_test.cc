#include "coordinator/shell/metrics.h"

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/shell/convert.h"
#include "tests/unit/coordinator/full_incident.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;
using testing::Not;

// A core with one worker that runs job 1, two ranks, and the metrics beside it.
class MetricsTest : public testing::Test {
 protected:
  MetricsTest() {
    step(WorkerRegistered{worker_, life_, "test", "h", 2, "h:1", {}, {}, {}, {}, 1});
    JobSpec spec;
    spec.name = "llama";
    spec.ranks_per_node = 2;
    spec.restarts_max = 1;
    spec.output_directory = "/out";
    step(JobSubmitted{RequestToken(1), "", spec, 1});
  }

  static CoreOptions options() {
    CoreOptions result;
    result.version = "test";
    return result;
  }

  void step(const Event& event) {
    ActionList ignored;
    core_.step(event, now_, ignored);
    metrics_.observe(core_, event);
  }

  HeartbeatReceived heartbeat(int32_t rank, int steps, uint32_t attempt = 1) const {
    RankProgress progress;
    progress.job = JobId(1);
    progress.attempt = Attempt(attempt);
    progress.rank = Rank(rank);
    progress.step = steps;
    for (int i = 0; i < steps; ++i) progress.step_times.add(0.25);
    if (steps > 0) {
      progress.step_seconds = 0.25;
      progress.loss = 2.5;
      progress.tokens_per_second = 100;
    }
    return {worker_, life_, {progress}, 1};
  }

  void expect_steps(int count) {
    const std::string page = metrics_.render(core_, now_, 1);
    const std::string labels = "{job=\"1\",name=\"llama\"} ";
    EXPECT_THAT(page,
                HasSubstr(absl::StrCat("muster_job_step_seconds_count", labels, count, "\n")));
    EXPECT_THAT(page, HasSubstr(absl::StrCat("muster_job_step_seconds_sum", labels, 0.25 * count)));
  }

  const WorkerName worker_{"node1"};
  const Incarnation life_{7};
  Instant now_ = instant_from_ns(1'000'000'000'000);
  Core core_{options(), {}, now_};
  Metrics metrics_{Epoch(1)};
};

TEST_F(MetricsTest, EveryStepIsCountedHoweverManyAHeartbeatBrings) {
  step(heartbeat(0, 3));
  expect_steps(3);
  step(heartbeat(0, 1000));
  expect_steps(1000);
}

TEST_F(MetricsTest, AHeartbeatThatComesTwiceOrLateAddsNothing) {
  step(heartbeat(0, 8));
  step(heartbeat(0, 8));
  step(heartbeat(0, 4));
  step(heartbeat(0, 9));
  expect_steps(9);
}

TEST_F(MetricsTest, OnlyRank0CountsAndOnlyWhereItRuns) {
  step(heartbeat(0, 2));
  step(heartbeat(1, 50));
  step(heartbeat(0, 60, 2));
  step(WorkerRegistered{
      WorkerName("node2"), Incarnation(9), "test", "h", 2, "h:1", {}, {}, {}, {}, 1});
  HeartbeatReceived foreign = heartbeat(0, 70);
  foreign.worker = WorkerName("node2");
  foreign.incarnation = Incarnation(9);
  step(foreign);
  expect_steps(2);
}

TEST_F(MetricsTest, TheNextAttemptsStepsAreAdded) {
  step(heartbeat(0, 10));
  step(heartbeat(1, 10));
  for (uint64_t rank = 0; rank < 2; ++rank) {
    step(RankExited{worker_, life_, 1 + rank, JobId(1), Attempt(1),
                    Rank(static_cast<int32_t>(rank)), -1, SIGKILL, 10, "", 1});
  }
  for (int i = 0; i < 10 && core_.jobs().at(JobId(1)).attempt == Attempt(1); ++i) {
    now_ = core_.next_deadline().value_or(now_);
    step(Tick{1});
    step(HeartbeatReceived{worker_, life_, {}, 1});
  }
  ASSERT_EQ(core_.jobs().at(JobId(1)).attempt, Attempt(2));
  step(heartbeat(0, 4, 2));
  expect_steps(14);
}

TEST_F(MetricsTest, FiguresBeginWithTheFirstStep) {
  const auto page = [&] { return metrics_.render(core_, now_, 1); };
  step(heartbeat(0, 0));
  step(heartbeat(1, 0));
  EXPECT_THAT(page(), HasSubstr("muster_job_attempt{job=\"1\",name=\"llama\"} 1\n"));
  for (const char* figure : {"step", "loss", "grad_norm", "tokens_per_second", "mfu_ratio"})
    EXPECT_THAT(page(), Not(HasSubstr(absl::StrCat("muster_job_", figure, "{")))) << figure;
  step(heartbeat(0, 1));
  step(heartbeat(1, 1));
  EXPECT_THAT(page(), HasSubstr("muster_job_loss{job=\"1\",name=\"llama\"} 2.5\n"));
  EXPECT_THAT(page(), HasSubstr("muster_job_tokens_per_second{job=\"1\",name=\"llama\"} 200\n"));
  EXPECT_THAT(page(), Not(HasSubstr("muster_job_mfu_ratio{"))) << "the device's peak is unknown";
}

TEST_F(MetricsTest, IncidentsAreCountedByKind) {
  step(heartbeat(0, 1));
  Incident incident = full_incident(1, JobId(1));
  incident.kind = IncidentKind::kSlowRank;
  incident.moments = {{1'000'000'000, "last progress"}, {3'500'000'000, "verdict"}};
  metrics_.count_incident(core_, incident, 1);
  metrics_.count_incident(core_, incident, 1);
  metrics_.count_incident(core_, full_incident(2, JobId(99)), 1);
  const std::string page = metrics_.render(core_, now_, 1);
  EXPECT_THAT(page, HasSubstr("muster_job_incidents_total{job=\"1\",kind=\"slow_rank\",name="
                              "\"llama\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("muster_job_detection_seconds_sum{job=\"1\",name=\"llama\"} 5\n"));
  EXPECT_THAT(page, HasSubstr("muster_job_suspect{job=\"1\",name=\"llama\"} 0\n"));
  EXPECT_THAT(page, Not(HasSubstr("\"99\""))) << "of a job that is not there any more";
}

TEST_F(MetricsTest, TheSlowestRanksHaveAScoreOnceTheyWereLookedAt) {
  const auto page = [&] { return metrics_.render(core_, now_, 1); };
  step(heartbeat(0, 1));
  step(heartbeat(1, 1));
  EXPECT_THAT(page(), Not(HasSubstr("muster_job_straggler_score{")));
  for (int steps = 2; steps <= 60; ++steps) {
    now_ += std::chrono::seconds(1);
    for (int32_t rank = 0; rank < 2; ++rank) {
      HeartbeatReceived beat = heartbeat(rank, steps);
      // Rank 0 waits for rank 1, for half of each step.
      if (rank == 0) beat.ranks[0].collective_wait_seconds = beat.ranks[0].step_times.seconds / 2;
      step(beat);
    }
  }
  EXPECT_THAT(page(),
              HasSubstr("muster_job_straggler_score{job=\"1\",name=\"llama\",rank=\"1\"} 2\n"));
  EXPECT_THAT(page(),
              HasSubstr("muster_job_straggler_score{job=\"1\",name=\"llama\",rank=\"0\"} 1\n"));
}

// Nobody scrapes: the series of jobs that ended long ago go when a new job comes.
TEST_F(MetricsTest, EndedJobsAreForgottenUnscraped) {
  const std::string first = "muster_job_step_seconds_count{job=\"1\",name=\"llama\"} 2\n";
  step(heartbeat(0, 2));
  step(heartbeat(1, 2));
  for (int32_t rank = 0; rank < 2; ++rank) {
    step(RankExited{worker_, life_, 1 + static_cast<uint64_t>(rank), JobId(1), Attempt(1),
                    Rank(rank), 0, 0, 2, "", 1});
  }
  ASSERT_EQ(core_.jobs().at(JobId(1)).state, JobState::kSucceeded);
  EXPECT_THAT(metrics_.render(core_, now_, 1), HasSubstr(first)) << "for a last scrape";

  const int64_t later = std::chrono::nanoseconds(std::chrono::hours(1)).count();
  JobSpec spec = core_.jobs().at(JobId(1)).spec;
  step(JobSubmitted{RequestToken(2), "", spec, later});
  HeartbeatReceived next = heartbeat(0, 2);
  next.ranks[0].job = JobId(2);
  next.unix_ns = later;
  step(next);
  // By the clock of its end, the first job would be shown with its steps if it still had them.
  EXPECT_THAT(metrics_.render(core_, now_, 1), Not(HasSubstr(first)));
}

TEST_F(MetricsTest, AnotherNumberOfCountsIsNoHistogram) {
  v1::Heartbeat message;
  message.add_ranks()->mutable_step_times()->add_counts(5);
  message.mutable_ranks(0)->mutable_step_times()->set_seconds(5);
  const HeartbeatReceived event = heartbeat_from_proto(message);
  EXPECT_EQ(event.ranks.at(0).step_times.total(), 0U);
  EXPECT_EQ(event.ranks.at(0).step_times.seconds, 0);
}

}  // namespace
}  // namespace muster::coordinator

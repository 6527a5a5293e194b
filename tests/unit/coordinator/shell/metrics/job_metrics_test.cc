#include "coordinator/shell/metrics/job_metrics.h"

#include "tests/unit/coordinator/shell/full_incident.h"
#include "tests/unit/coordinator/shell/metrics/metrics_fixture.h"

namespace muster::coordinator {
namespace {

TEST_F(MetricsTest, EveryStepOfAHeartbeatIsCounted) {
  step(heartbeat(0, 3));
  expect_steps(3);
  step(heartbeat(0, 1000));
  expect_steps(1000);
}

TEST_F(MetricsTest, ARepeatedOrLateHeartbeatAddsNothing) {
  step(heartbeat(0, 8));
  step(heartbeat(0, 8));
  step(heartbeat(0, 4));
  step(heartbeat(0, 9));
  expect_steps(9);
}

TEST_F(MetricsTest, OnlyRank0OnItsWorkerCounts) {
  step(heartbeat(0, 2));
  step(heartbeat(1, 50));
  step(heartbeat(0, 60, 2));
  step(WorkerRegistered{
      WorkerName("node2"), Incarnation(9), "test", "h", 2, "h:1", {}, {}, {}, {}, {}, 1});
  HeartbeatReceived foreign = heartbeat(0, 70);
  foreign.worker = WorkerName("node2");
  foreign.incarnation = Incarnation(9);
  step(foreign);
  expect_steps(2);
}

TEST_F(MetricsTest, TheNextAttemptsStepsAreAdded) {
  step(heartbeat(0, 10));
  step(heartbeat(1, 10));
  restart();
  step(heartbeat(0, 4, 2));
  expect_steps(14);
}

// A speed of 0 would distort every mean.
TEST_F(MetricsTest, NoSpeedIsShownBetweenAttempts) {
  const auto beat = [&](int32_t rank, int steps, uint32_t attempt) {
    HeartbeatReceived result = heartbeat(rank, steps, attempt);
    result.ranks[0].device_peak_tflops = 400;
    result.ranks[0].tflops_per_device = steps > 0 ? 100 : 0;
    step(result);
  };
  const auto expect_speed = [&](bool there, const char* when) {
    const std::string now = page();
    for (const std::string& figure : {"muster_job_tokens_per_second" + of_job_ + "200\n",
                                      "muster_job_mfu_ratio" + of_job_ + "0.25\n"}) {
      const std::string family = figure.substr(0, figure.find('}'));
      if (there) {
        EXPECT_THAT(now, HasSubstr(figure)) << when;
      } else {
        EXPECT_THAT(now, Not(HasSubstr(family))) << when;
      }
    }
    EXPECT_THAT(now, HasSubstr("muster_job_loss" + of_job_ + "2.5\n"))
        << "the last series, " << when;
  };
  for (const int32_t rank : {0, 1}) beat(rank, 10, 1);
  expect_speed(true, "training");
  restart();
  expect_speed(false, "starting");
  for (const int32_t rank : {0, 1}) beat(rank, 0, 2);
  ASSERT_EQ(core_.jobs().at(JobId(1)).state, JobState::kRunning);
  expect_speed(false, "loading");
  for (const int32_t rank : {0, 1}) beat(rank, 1, 2);
  expect_speed(true, "training again");
}

TEST_F(MetricsTest, FiguresBeginWithTheFirstStep) {
  const auto page = [&] { return metrics_.render(core_, now_, 1); };
  step(heartbeat(0, 0));
  step(heartbeat(1, 0));
  EXPECT_THAT(page(), HasSubstr("muster_job_attempt{job_id=\"1\",name=\"llama\"} 1\n"));
  for (const char* figure : {"step", "loss", "grad_norm", "tokens_per_second", "mfu_ratio"})
    EXPECT_THAT(page(), Not(HasSubstr(absl::StrCat("muster_job_", figure, "{")))) << figure;
  step(heartbeat(0, 1));
  step(heartbeat(1, 1));
  EXPECT_THAT(page(), HasSubstr("muster_job_loss{job_id=\"1\",name=\"llama\"} 2.5\n"));
  EXPECT_THAT(page(), HasSubstr("muster_job_tokens_per_second{job_id=\"1\",name=\"llama\"} 200\n"));
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
  EXPECT_THAT(page, HasSubstr("muster_fleet_incidents_total{kind=\"slow_rank\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("muster_fleet_incidents_total{kind=\"hang\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("muster_fleet_incidents_total{kind=\"disk_full\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("muster_job_incidents_total{job_id=\"1\",kind=\"slow_rank\",name="
                              "\"llama\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("muster_job_detection_seconds_sum{job_id=\"1\",name=\"llama\"} 5\n"));
  EXPECT_THAT(page, HasSubstr("muster_job_suspect{job_id=\"1\",name=\"llama\"} 0\n"));
  EXPECT_THAT(page, Not(HasSubstr("\"99\""))) << "an incident of a job that no longer exists";
}

TEST_F(MetricsTest, ACheckpointHasTheTimeOfItsFirstReport) {
  const auto saved = [&](int64_t at, int64_t seconds) {
    HeartbeatReceived beat = heartbeat(1, 1);
    beat.ranks[0].checkpoint_step = at;
    beat.unix_ns = seconds * 1'000'000'000;
    step(beat);
  };
  step(heartbeat(0, 1));
  saved(-1, 1);
  EXPECT_THAT(page(), Not(HasSubstr("muster_job_checkpoint_step{")));
  EXPECT_THAT(page(), Not(HasSubstr("muster_job_checkpoint_timestamp_seconds{")));
  saved(20, 5);
  saved(20, 9);
  EXPECT_THAT(page(), HasSubstr("muster_job_checkpoint_step" + of_job_ + "20\n"));
  EXPECT_THAT(page(), HasSubstr("muster_job_checkpoint_timestamp_seconds" + of_job_ + "5\n"));
  saved(40, 13);
  EXPECT_THAT(page(), HasSubstr("muster_job_checkpoint_timestamp_seconds" + of_job_ + "13\n"));
}

// MusterGoodputLow fires an hour after this time, also for a job that restarts more often.
TEST_F(MetricsTest, TheStartTimeIsThatOfTheFirstAttempt) {
  const auto start_at = [&] {
    const std::string now = page();
    const std::string line = "muster_job_start_timestamp_seconds" + of_job_;
    const size_t at = now.find(line);
    return at == std::string::npos ? "" : now.substr(at, now.find('\n', at) - at);
  };
  step(heartbeat(0, 1));
  const std::string first = start_at();
  ASSERT_NE(first, "");
  restart(7'000'000'000);
  ASSERT_EQ(core_.jobs().at(JobId(1)).started_unix_ns, 7'000'000'000);
  EXPECT_EQ(start_at(), first);
}

TEST_F(MetricsTest, WithoutACheckpointTheStartTimeIsShown) {
  const std::string start = "muster_job_start_timestamp_seconds" + of_job_;
  const std::string now = page();
  const size_t at = now.find(start);
  ASSERT_NE(at, std::string::npos);
  const std::string when = now.substr(at + start.size(), now.find('\n', at) - at - start.size());
  step(heartbeat(0, 1));
  EXPECT_THAT(page(), Not(HasSubstr("muster_job_checkpoint_timestamp_seconds{")));
  HeartbeatReceived beat = heartbeat(0, 2);
  beat.ranks[0].checkpoints.on_request = 1;
  beat.ranks[0].checkpoints.failed = 1;
  beat.unix_ns = 7'000'000'000;
  step(beat);
  EXPECT_THAT(page(), HasSubstr("muster_job_checkpoint_timestamp_seconds" + of_job_ + when + "\n"));
  EXPECT_THAT(page(), Not(HasSubstr("muster_job_checkpoint_step{")));
}

TEST(JobMetrics, ARestartedCoordinatorHasTheAgeOfTheCheckpoint) {
  Job job;
  job.id = JobId(1);
  job.spec.name = "llama";
  job.attempt = Attempt(1);
  job.account.checkpoint_step = 40;
  job.account.checkpoint_unix_ns = 5'000'000'000;
  DurableState state;
  state.jobs.push_back(job);
  Core core(CoreOptions{}, std::move(state), Instant{});
  Metrics metrics{Epoch(2)};
  EXPECT_THAT(
      metrics.render(core, Instant{}, 9'000'000'000),
      HasSubstr("muster_job_checkpoint_timestamp_seconds{job_id=\"1\",name=\"llama\"} 5\n"));
}

TEST_F(MetricsTest, AJobIsInOneState) {
  step(heartbeat(0, 1));
  const std::string state = "muster_job_state{job_id=\"1\",name=\"llama\",state=\"";
  EXPECT_THAT(metrics_.render(core_, now_, 1), HasSubstr(state + "starting\"} 1\n"));
  step(heartbeat(1, 1));
  const std::string page = metrics_.render(core_, now_, 1);
  EXPECT_THAT(page, HasSubstr(state + "running\"} 1\n"));
  EXPECT_THAT(page, Not(HasSubstr(state + "starting")));
  EXPECT_THAT(page, HasSubstr("muster_job_ranks{job_id=\"1\",name=\"llama\"} 2\n"));
}

TEST_F(MetricsTest, MoreJobsThanHaveSeriesAreCounted) {
  step(WorkerRegistered{
      WorkerName("big"), Incarnation(9), "test", "h", 1000, "h:1", {}, {}, {}, {}, {}, 1});
  const JobSpec first = core_.jobs().at(JobId(1)).spec;
  for (uint64_t i = 2; i <= daemon::kJobsShown + 5; ++i) {
    JobSpec spec = first;
    spec.output_directory = absl::StrCat("/out", i);
    spec.ranks_per_node = 1;
    step(JobSubmitted{RequestToken(i), "", spec, 1});
  }
  EXPECT_THAT(metrics_.render(core_, now_, 1), HasSubstr("muster_jobs_without_series 5\n"));
}

TEST(JobMetrics, ARunningJobReplacesAWaitingOne) {
  Job job;
  job.id = JobId(1);
  job.spec.name = "waits";
  job.spec.ranks_per_node = 100;
  job.spec.output_directory = "/out1";
  job.attempt = Attempt(1);
  DurableState state;
  state.jobs.push_back(job);
  state.last_job_id = JobId(1);
  const Instant now = instant_from_ns(1'000'000'000'000);
  CoreOptions options;
  options.version = "test";
  Core core(options, std::move(state), now);
  Metrics metrics{Epoch(1), {.job_series = 1}};
  const std::string waits = "muster_job_attempt{job_id=\"1\",name=\"waits\"} 1\n";
  EXPECT_THAT(metrics.render(core, now, 1), HasSubstr(waits));

  const auto submit = [&](const std::string& name) {
    JobSpec spec;
    spec.name = name;
    spec.priority = 1;
    spec.output_directory = "/" + name;
    ActionList ignored;
    core.step(JobSubmitted{RequestToken(1), "", spec, 1}, now, ignored);
  };
  ActionList ignored;
  core.step(
      WorkerRegistered{
          WorkerName("node1"), Incarnation(7), "test", "h", 2, "h:1", {}, {}, {}, {}, {}, 1},
      now, ignored);
  submit("runs");
  ASSERT_TRUE(is_live(core.jobs().at(JobId(2)).state)) << core.jobs().at(JobId(2)).reason;
  const std::string runs = "muster_job_attempt{job_id=\"2\",name=\"runs\"} 1\n";
  std::string page = metrics.render(core, now, 1);
  EXPECT_THAT(page, HasSubstr(runs));
  EXPECT_THAT(page, Not(HasSubstr(waits)));
  EXPECT_THAT(page, HasSubstr("muster_jobs_without_series 0\n")) << "a queued job does not count";
  submit("late");
  ASSERT_TRUE(is_live(core.jobs().at(JobId(3)).state)) << core.jobs().at(JobId(3)).reason;
  page = metrics.render(core, now, 1);
  EXPECT_THAT(page, HasSubstr(runs));
  EXPECT_THAT(page, HasSubstr("muster_jobs_without_series 1\n"));
}

TEST_F(MetricsTest, TimeIsCountedOnceSettled) {
  const auto page = [&] { return metrics_.render(core_, now_, 1); };
  const auto trains = [&](int32_t rank, int steps) {
    HeartbeatReceived beat = heartbeat(rank, steps);
    beat.ranks[0].phase = Phase::kStep;
    return beat;
  };
  now_ += std::chrono::seconds(2);
  step(heartbeat(0, 0));
  step(heartbeat(1, 0));
  now_ += std::chrono::seconds(5);
  step(trains(0, 4));
  const std::string lost = "muster_job_lost_seconds_total{cause=\"none\",class=\"";
  EXPECT_THAT(page(), HasSubstr(lost + "starting\",job_id=\"1\",name=\"llama\"} 2\n"));
  EXPECT_THAT(page(), HasSubstr(lost + "loading\",job_id=\"1\",name=\"llama\"} 4\n"));
  EXPECT_THAT(page(),
              HasSubstr("muster_job_productive_seconds_total{job_id=\"1\",name=\"llama\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("muster_job_goodput_ratio{job_id=\"1\",name=\"llama\"} 0.142857"));
  now_ += std::chrono::seconds(7);
  EXPECT_THAT(page(),
              HasSubstr("muster_job_productive_seconds_total{job_id=\"1\",name=\"llama\"} 1\n"))
      << "the time is settled when a step is completed";
}

// A job's account is stored every few minutes, so a restarted coordinator has less than the
// counters showed, until the job reports the rest.
TEST_F(MetricsTest, CountersNeverDecreaseAfterARestart) {
  for (const int32_t rank : {0, 1}) step(heartbeat(rank, 4));
  ASSERT_EQ(core_.jobs().at(JobId(1)).state, JobState::kRunning);
  DurableState state;
  state.jobs.push_back(durable(core_.jobs().at(JobId(1))));
  state.last_job_id = JobId(1);
  Core later(options(), std::move(state), now_);
  Metrics metrics{Epoch(2)};
  std::string now = metrics.render(later, now_, 1);
  EXPECT_THAT(now, HasSubstr("muster_job_attempt" + of_job_ + "1\n"));
  EXPECT_THAT(now, Not(HasSubstr("muster_job_productive_seconds_total{")));
  EXPECT_THAT(now, Not(HasSubstr("muster_job_accounted_seconds_total{")));
  ActionList ignored;
  later.step(WorkerRegistered{worker_, life_, "test", "h", 2, "h:1", {}, {}, {}, {}, {}, 1}, now_,
             ignored);
  later.step(heartbeat(0, 60), now_ + std::chrono::seconds(5), ignored);
  now = metrics.render(later, now_ + std::chrono::seconds(5), 1);
  EXPECT_THAT(now, HasSubstr("muster_job_productive_seconds_total" + of_job_));
  EXPECT_THAT(now, HasSubstr("muster_job_accounted_seconds_total" + of_job_));
}

// Prometheus sees no increase in a series that begins with a value.
TEST_F(MetricsTest, TheFirstLossOfACauseStartsAtZero) {
  for (const int32_t rank : {0, 1}) step(heartbeat(rank, 10));
  const std::string lost = "muster_job_lost_seconds_total{cause=\"rank_died\",class=\"";
  EXPECT_THAT(page(), Not(HasSubstr(lost)));
  now_ += std::chrono::seconds(3);
  restart();
  now_ += std::chrono::seconds(4);
  for (const int32_t rank : {0, 1}) step(heartbeat(rank, 0, 2));
  const std::string first = page();
  EXPECT_THAT(first, HasSubstr(lost + "starting\",job_id=\"1\",name=\"llama\"} 0\n"));
  EXPECT_THAT(first, Not(HasSubstr("muster_job_accounted_seconds_total" + of_job_ + "0\n")));
  EXPECT_EQ(page(), first) << "another scraper gets the same page";
  now_ += std::chrono::minutes(1);
  EXPECT_THAT(page(), HasSubstr(lost + "starting\",job_id=\"1\",name=\"llama\"} 4\n"));
  // Losses before the job had series are no increase.
  Metrics later{Epoch(2)};
  EXPECT_THAT(later.render(core_, now_, 1),
              HasSubstr(lost + "starting\",job_id=\"1\",name=\"llama\"} 4\n"));
}

TEST_F(MetricsTest, TheSlowestRanksHaveAScoreOnceTheyWereSampled) {
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
              HasSubstr("muster_job_straggler_score{job_id=\"1\",name=\"llama\",rank=\"1\"} 2\n"));
  EXPECT_THAT(page(),
              HasSubstr("muster_job_straggler_score{job_id=\"1\",name=\"llama\",rank=\"0\"} 1\n"));
}

// Without scrapes, the series of jobs that ended long ago are removed when a new job comes.
TEST_F(MetricsTest, EndedJobsAreForgottenWithoutScrapes) {
  const std::string first = "muster_job_step_seconds_count{job_id=\"1\",name=\"llama\"} 2\n";
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
  // If the first job still had its series, it would be shown with its steps at this time.
  EXPECT_THAT(metrics_.render(core_, now_, 1), Not(HasSubstr(first)));
}

TEST_F(MetricsTest, SeriesOfManyThatEndAtOnceGoWithSeveralPages) {
  constexpr int kMany = 2 * kForgottenAtOnce + 1;
  const WorkerName big("big");
  const Incarnation life(9);
  step(WorkerRegistered{big, life, "test", "h", 1000, "h:1", {}, {}, {}, {}, {}, 1});
  const JobSpec first = core_.jobs().at(JobId(1)).spec;
  for (uint64_t i = 2; i < 2 + kMany; ++i) {
    JobSpec spec = first;
    spec.output_directory = absl::StrCat("/out", i);
    spec.ranks_per_node = 1;
    step(JobSubmitted{RequestToken(i), "", spec, 1});
  }
  const auto jobs_shown = [&](int64_t unix_ns) {
    const std::string page = metrics_.render(core_, now_, unix_ns);
    const std::string series = "\nmuster_job_attempt{";
    int count = 0;
    for (size_t at = page.find(series); at != std::string::npos; at = page.find(series, at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(jobs_shown(1), 1 + kMany);
  for (uint64_t i = 2; i < 2 + kMany; ++i) {
    step(RankExited{big, life, i, JobId(i), Attempt(1), Rank(0), 0, 0, 2, "", 1});
    ASSERT_EQ(core_.jobs().at(JobId(i)).state, JobState::kSucceeded);
  }
  EXPECT_EQ(jobs_shown(1), 1 + kMany) << "for a last scrape";
  const int64_t later = std::chrono::nanoseconds(std::chrono::hours(1)).count();
  EXPECT_EQ(jobs_shown(later), 1 + kMany - kForgottenAtOnce);
  EXPECT_EQ(jobs_shown(later), 1 + kMany - 2 * kForgottenAtOnce);
  EXPECT_EQ(jobs_shown(later), 1);
}

}  // namespace
}  // namespace muster::coordinator

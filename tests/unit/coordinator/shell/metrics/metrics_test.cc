#include "coordinator/shell/metrics/metrics.h"

#include "coordinator/shell/messages/job_and_worker_messages.h"
#include "tests/unit/coordinator/shell/metrics/metrics_fixture.h"

namespace muster::coordinator {
namespace {

TEST_F(MetricsTest, ALargeFleetHasTotalsAndASampleAndThoseThatAreSilent) {
  const auto name = [](int i) { return WorkerName(absl::StrCat("silent", i)); };
  for (int i = 0; i < 200; ++i)
    step(WorkerRegistered{name(i), Incarnation(9), "test", "h", 8, "h:1", {}, {}, {}, {}, {}, 1});
  for (int second = 0; second < 7;
       ++second) {  // a stalled coordinator counts no silence against workers
    now_ += std::chrono::seconds(1);
    step(HeartbeatReceived{worker_, life_, {}, 1});
    for (int i = 0; i < 200; ++i) {
      if (i != 77) step(HeartbeatReceived{name(i), Incarnation(9), {}, 1});
    }
  }
  const std::string page = metrics_.render(core_, now_, 1);
  EXPECT_THAT(page, HasSubstr("muster_workers{state=\"connected\"} 201\n"));
  EXPECT_THAT(page, HasSubstr("muster_workers{state=\"away\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("muster_slots{state=\"used\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("muster_slots{state=\"free\"} 1600\n"));
  EXPECT_THAT(page, HasSubstr("muster_fleet_heartbeat_age_max_seconds 7\n"));
  EXPECT_THAT(page, HasSubstr("muster_fleet_heartbeat_age_seconds{worker=\"silent77\"} 7\n"));
  size_t shown = 0;
  for (size_t at = 0; (at = page.find("muster_fleet_connected{", at)) != std::string::npos; ++at)
    ++shown;
  EXPECT_LE(shown, 65U);
  EXPECT_GE(shown, 33U);
}

TEST_F(MetricsTest, AnExpiredWorkerCountsAsLostForAnHourOrUntilItReturns) {
  const std::string of_it = "{worker=\"node2\"} ";
  const WorkerRegistered arrives{
      WorkerName("node2"), Incarnation(9), "test", "h", 2, "h:1", {}, {}, {}, {}, {}, 1};
  const auto page = [&] { return metrics_.render(core_, now_, 1); };
  const auto pass = [&](Duration time) {
    now_ += time;
    step(HeartbeatReceived{worker_, life_, {}, 1});
    step(Tick{1});
  };
  step(arrives);
  EXPECT_THAT(page(), HasSubstr("muster_workers{state=\"lost\"} 0\n"));
  for (int i = 0; i < 15; ++i) pass(std::chrono::seconds(1));
  ASSERT_FALSE(core_.workers().contains(WorkerName("node2")));
  EXPECT_THAT(page(), HasSubstr("muster_workers{state=\"lost\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("muster_fleet_heartbeat_age_seconds" + of_it + "15\n"));
  EXPECT_THAT(page(), HasSubstr("muster_fleet_connected" + of_it + "0\n"));
  EXPECT_THAT(page(), Not(HasSubstr("muster_fleet_slots" + of_it)));
  step(arrives);
  EXPECT_THAT(page(), HasSubstr("muster_workers{state=\"lost\"} 0\n"));
  EXPECT_THAT(page(), HasSubstr("muster_fleet_slots" + of_it + "2\n"));
  for (int i = 0; i < 15; ++i) pass(std::chrono::seconds(1));
  EXPECT_THAT(page(), HasSubstr("muster_workers{state=\"lost\"} 1\n"));
  for (int i = 0; i < 3600; ++i) pass(std::chrono::seconds(1));
  EXPECT_THAT(page(), HasSubstr("muster_workers{state=\"lost\"} 0\n"));
  EXPECT_THAT(page(), Not(HasSubstr(of_it)));
}

TEST_F(MetricsTest, FleetGoodputOutlivesTheSeriesOfJobs) {
  HeartbeatReceived training = heartbeat(0, 0);
  training.ranks[0].phase = Phase::kStep;
  step(training);
  step(heartbeat(1, 0));
  now_ += std::chrono::seconds(4);
  training = heartbeat(0, 4);
  training.ranks[0].phase = Phase::kStep;
  step(training);
  const std::string begun = metrics_.render(core_, now_, 1);
  const std::string of_job = "\nmuster_job_productive_seconds_total{job_id=\"1\",name=\"llama\"}";
  const size_t at = begun.find(of_job) + of_job.size();
  const std::string first =
      "muster_fleet_productive_seconds_total" + begun.substr(at, begun.find('\n', at) + 1 - at);
  EXPECT_THAT(begun, HasSubstr(first));
  for (int32_t rank = 0; rank < 2; ++rank) {
    step(RankExited{worker_, life_, 1 + static_cast<uint64_t>(rank), JobId(1), Attempt(1),
                    Rank(rank), 1, 0, 4, "", 1});
  }
  now_ += std::chrono::seconds(3);
  step(heartbeat(0, 0, 2));
  step(heartbeat(1, 0, 2));
  for (int32_t rank = 0; rank < 2; ++rank) {
    step(RankExited{worker_, life_, 3 + static_cast<uint64_t>(rank), JobId(1), Attempt(2),
                    Rank(rank), 1, 0, 4, "", 1});
  }
  ASSERT_EQ(core_.jobs().at(JobId(1)).state, JobState::kFailed);
  const int64_t later = std::chrono::nanoseconds(std::chrono::hours(1)).count();
  const std::string page = metrics_.render(core_, now_, later);
  EXPECT_THAT(page, Not(HasSubstr("muster_job_productive_seconds_total{")));
  EXPECT_THAT(page, HasSubstr(first));
  EXPECT_THAT(
      page,
      HasSubstr("muster_fleet_lost_seconds_total{cause=\"rank_died\",class=\"starting\"} 3\n"));
  EXPECT_EQ(metrics_.render(core_, now_, later), page) << "nothing is counted twice";
}

// Time of jobs before the start belongs to the counters of an earlier run, which Prometheus has
// scraped.
TEST(FleetGoodput, CountsFromItsOwnStart) {
  Job job;
  job.id = JobId(1);
  job.state = JobState::kFailed;
  job.attempt = Attempt(1);
  job.account.settled.at(TimeClass::kProductive, LossCause::kNone) = std::chrono::hours(1);
  job.account.mode = Account::Mode::kEnded;
  DurableState state;
  state.jobs.push_back(job);
  Core core(CoreOptions{}, std::move(state), Instant{});
  Metrics metrics{Epoch(2)};
  const std::string page = metrics.render(core, Instant{}, 1);
  EXPECT_THAT(page, HasSubstr("muster_fleet_productive_seconds_total 0\n"));
  // Prometheus sees the first loss of a cause as an increase.
  EXPECT_THAT(
      page,
      HasSubstr("muster_fleet_lost_seconds_total{cause=\"hang\",class=\"standing_still\"} 0\n"));
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

#include "coordinator/shell/metrics/incident_metrics.h"

#include "tests/unit/coordinator/shell/full_incident.h"
#include "tests/unit/coordinator/shell/metrics/metrics_fixture.h"

namespace muster::coordinator {
namespace {

TEST_F(MetricsTest, TheNewestIncidentOfAKindHasItsNumberAndItsSuspect) {
  step(heartbeat(0, 1));
  const std::string metric = "muster_job_incident_timestamp_seconds{incident=\"";
  Incident incident = full_incident(11, JobId(1));
  incident.kind = IncidentKind::kHang;
  incident.suspects.resize(1);
  incident.suspects[0].rank = Rank(5);
  incident.suspects[0].worker = WorkerName("node1");
  metrics_.count_incident(core_, incident, 1'500'000'000);
  const std::string of_a_hang = "\",job_id=\"1\",kind=\"hang\",name=\"llama\",rank=";
  EXPECT_THAT(metrics_.render(core_, now_, 1),
              HasSubstr(metric + "11" + of_a_hang + "\"5\",worker=\"node1\"} 1.5\n"));
  incident.id = IncidentId(12);
  incident.suspects.clear();
  metrics_.count_incident(core_, incident, 2'000'000'000);
  const std::string page = metrics_.render(core_, now_, 1);
  EXPECT_THAT(page, HasSubstr(metric + "12" + of_a_hang + "\"\",worker=\"\"} 2\n"));
  EXPECT_THAT(page, Not(HasSubstr(metric + "11\""))) << "one incident per kind";
}

size_t incidents_on(const std::string& page) {
  size_t count = 0;
  for (size_t at = 0;
       (at = page.find("muster_job_incident_timestamp_seconds{", at)) != std::string::npos; ++at)
    ++count;
  return count;
}

TEST_F(MetricsTest, AJobWithoutSeriesHasItsIncidents) {
  Metrics without{Epoch(1), {.job_series = 0}};
  without.count_incident(core_, full_incident(3, JobId(1)), 1'500'000'000);
  const std::string now = without.render(core_, now_, 1);
  EXPECT_THAT(now, Not(HasSubstr("muster_job_state{")));
  EXPECT_THAT(now, HasSubstr("muster_jobs_without_series 1\n"));
  EXPECT_THAT(now, HasSubstr("muster_job_incident_timestamp_seconds{incident=\"3\",job_id=\"1\","
                             "kind=\"hang\",name=\"llama\",rank=\"1\",worker=\"node0\"} 1.5\n"));
}

TEST_F(MetricsTest, WhenAllJobsFailTheNewestIncidentsAreShown) {
  const JobSpec first = core_.jobs().at(JobId(1)).spec;
  uint64_t incidents = 0;
  for (uint64_t job = 1; job <= kIncidentsShown / kIncidentKindNames.size() + 1; ++job) {
    JobSpec spec = first;
    spec.output_directory = absl::StrCat("/out", job);
    step(JobSubmitted{RequestToken(job), "", spec, 1});
    for (size_t kind = 0; kind < kIncidentKindNames.size(); ++kind) {
      Incident incident = full_incident(++incidents, JobId(job));
      incident.kind = static_cast<IncidentKind>(kind);
      metrics_.count_incident(core_, incident, static_cast<int64_t>(incidents));
    }
  }
  const std::string now = page();
  EXPECT_EQ(incidents_on(now), kIncidentsShown);
  const uint64_t gone = incidents - kIncidentsShown;  // the newest one removed
  EXPECT_GE(gone, 1U);
  EXPECT_THAT(now, Not(HasSubstr(absl::StrCat("{incident=\"", gone, "\""))));
  EXPECT_THAT(now, HasSubstr(absl::StrCat("{incident=\"", gone + 1, "\"")));
  EXPECT_THAT(now, HasSubstr(absl::StrCat("{incident=\"", incidents, "\"")));
}

TEST_F(MetricsTest, IncidentsOfAnEarlierRunAreShownButNotCounted) {
  const std::string prefix = "muster_job_incident_timestamp_seconds{incident=\"";
  const auto decided = [](uint64_t id, int64_t seconds) {
    Incident incident = full_incident(id, JobId(1));
    incident.moments = {{1'000'000'000, "last progress"}, {9'000'000'000, "caught up"}};
    incident.recovery->unix_ns[static_cast<size_t>(RecoveryMoment::kDecided)] =
        seconds * 1'000'000'000;
    return incident;
  };
  metrics_.restore_incident(core_, decided(12, 4));
  metrics_.restore_incident(core_, decided(11, 3));
  Incident open = full_incident(13, JobId(1));
  open.kind = IncidentKind::kSlowRank;
  open.moments = {{1'000'000'000, "last progress"}, {6'000'000'000, "verdict"}};
  open.recovery.reset();
  metrics_.restore_incident(core_, open);
  metrics_.restore_incident(core_, full_incident(14, JobId(99)));
  Incident closed = open;
  closed.id = IncidentId(15);
  closed.kind = IncidentKind::kSlowerThanBefore;
  closed.moments = {{5'000'000'000, "a step takes 2 s"}, {8'000'000'000, "no longer"}};
  metrics_.restore_incident(core_, closed);
  const std::string now = page();
  EXPECT_THAT(now,
              HasSubstr(prefix + "15\",job_id=\"1\",kind=\"slower_than_before\",name=\"llama\","
                                 "rank=\"1\",worker=\"node0\"} 5\n"));
  EXPECT_EQ(incidents_on(now), 3U) << "the newest incident of each kind, of known jobs";
  EXPECT_THAT(now, HasSubstr(prefix + "12\",job_id=\"1\",kind=\"hang\",name=\"llama\",rank=\"1\","
                                      "worker=\"node0\"} 4\n"));
  EXPECT_THAT(now, HasSubstr(prefix + "13\",job_id=\"1\",kind=\"slow_rank\",name=\"llama\","
                                      "rank=\"1\",worker=\"node0\"} 6\n"));
  EXPECT_THAT(now, HasSubstr("muster_fleet_incidents_total{kind=\"hang\"} 0\n"));
}

// Alerts report an incident for this time, even if its job has ended.
TEST_F(MetricsTest, AnIncidentIsShownForTenMinutesAfterItsJobEnds) {
  constexpr int64_t kMinute = 60'000'000'000;
  for (const int32_t rank : {0, 1}) step(heartbeat(rank, 2));
  metrics_.count_incident(core_, full_incident(3, JobId(1)), 1);
  for (int32_t rank = 0; rank < 2; ++rank) {
    step(RankExited{worker_, life_, 1 + static_cast<uint64_t>(rank), JobId(1), Attempt(1),
                    Rank(rank), 0, 0, 2, "", 1});
  }
  ASSERT_TRUE(is_terminal(core_.jobs().at(JobId(1)).state));
  const std::string nine = metrics_.render(core_, now_, 9 * kMinute);
  EXPECT_EQ(incidents_on(nine), 1U);
  EXPECT_THAT(nine, Not(HasSubstr("muster_job_state{")));
  EXPECT_EQ(incidents_on(metrics_.render(core_, now_, 11 * kMinute)), 0U);
}

}  // namespace
}  // namespace muster::coordinator

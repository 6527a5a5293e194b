#include "cli/admin/doctor_checks.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kNanoseconds = 1'000'000'000;
constexpr int64_t kAnswered = 1'800'000'000 * kNanoseconds;
constexpr int64_t kSecondsOfDay = 86'400;

v1::Coordinator good_coordinator() {
  v1::Coordinator coordinator;
  coordinator.set_version("1");
  coordinator.set_epoch(4);
  coordinator.set_state_dir("/var/lib/muster");
  coordinator.set_unix_ns(kAnswered);
  coordinator.set_disk_bytes(uint64_t{100} << 30);
  coordinator.set_disk_free_bytes(uint64_t{60} << 30);
  coordinator.set_state_bytes(3 << 20);
  coordinator.set_open_fds(50);
  coordinator.set_max_fds(1024);
  coordinator.set_decides(true);
  return coordinator;
}

// Returns the text and the advice of the only problem; "" if there is none.
std::string only_problem(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.ok, finding.advice.empty()) << finding.check;
    if (finding.ok) continue;
    EXPECT_EQ(text, "") << finding.check << " is a second problem";
    text = std::string(finding.check) + ": " + finding.text + " → " + finding.advice;
  }
  return text;
}

std::string coordinator_problem(const v1::Coordinator& coordinator) {
  return only_problem(examine_coordinator(coordinator, "1", kAnswered, kAnswered));
}

TEST(DoctorChecks, AGoodCoordinatorHasNoProblem) {
  const auto findings = examine_coordinator(good_coordinator(), "1", kAnswered, kAnswered);
  EXPECT_EQ(only_problem(findings), "");
  const std::string text = describe_findings(findings);
  EXPECT_THAT(text, HasSubstr("ok       disk: 60.0 GiB of 100.0 GiB are free at /var/lib/muster"));
  EXPECT_THAT(text, HasSubstr("No problem was found."));
}

TEST(DoctorChecks, EachFaultOfTheCoordinatorIsOneProblem) {
  v1::Coordinator coordinator = good_coordinator();
  coordinator.set_version("2");
  EXPECT_THAT(coordinator_problem(coordinator),
              HasSubstr("version: coordinator 2, this program 1"));

  coordinator = good_coordinator();
  coordinator.set_decides(false);
  EXPECT_THAT(coordinator_problem(coordinator), AllOf(HasSubstr("core: "), HasSubstr("make room")));

  coordinator = good_coordinator();
  coordinator.set_oldest_event_age_ns(3 * kNanoseconds);
  coordinator.set_queued_events(7);
  EXPECT_THAT(coordinator_problem(coordinator), HasSubstr("7 events wait, the oldest for 3.0 s"));

  coordinator = good_coordinator();
  coordinator.set_disk_free_bytes(uint64_t{4} << 30);
  EXPECT_THAT(coordinator_problem(coordinator), HasSubstr("4.0 GiB of 100.0 GiB"));

  coordinator = good_coordinator();
  coordinator.set_open_fds(900);
  EXPECT_THAT(coordinator_problem(coordinator), HasSubstr("descriptors: 900 of 1024 in use"));
}

TEST(DoctorChecks, TheClockMayDifferByTheTimeOfTheCall) {
  v1::Coordinator coordinator = good_coordinator();
  const auto between = [&](int64_t requested, int64_t answered) {
    return only_problem(examine_coordinator(coordinator, "1", requested, answered));
  };
  EXPECT_EQ(between(kAnswered - 20 * kNanoseconds, kAnswered + 20 * kNanoseconds), "");
  EXPECT_EQ(between(kAnswered + 4 * kNanoseconds, kAnswered + 4 * kNanoseconds), "");
  EXPECT_THAT(between(kAnswered + 6 * kNanoseconds, kAnswered + 9 * kNanoseconds),
              HasSubstr("differs by 6.0 s"));
  EXPECT_THAT(between(kAnswered - 70 * kNanoseconds, kAnswered - 60 * kNanoseconds),
              HasSubstr("differs by 60.0 s"));
}

TEST(DoctorChecks, ACertificateIsReportedTwoWeeksBeforeItsEnd) {
  v1::Coordinator coordinator = good_coordinator();
  v1::ServerCertificate& certificate = *coordinator.mutable_certificate();
  certificate.set_path("/tls.crt");
  certificate.set_not_before_unix_s(kAnswered / kNanoseconds - kSecondsOfDay);
  const auto ends_in = [&](int64_t seconds) {
    certificate.set_not_after_unix_s(kAnswered / kNanoseconds + seconds);
    return coordinator_problem(coordinator);
  };
  EXPECT_EQ(ends_in(15 * kSecondsOfDay), "");
  EXPECT_THAT(ends_in(13 * kSecondsOfDay),
              AllOf(HasSubstr("/tls.crt is valid for 13d"), HasSubstr("--tls-cert")));
  EXPECT_THAT(ends_in(-1), HasSubstr("/tls.crt has expired"));
  certificate.set_not_before_unix_s(kAnswered / kNanoseconds + kSecondsOfDay);
  EXPECT_THAT(ends_in(90 * kSecondsOfDay), HasSubstr("is not valid yet"));
  certificate.set_problem("--tls-cert=/tls.crt: no such file");
  EXPECT_THAT(coordinator_problem(coordinator), HasSubstr("no such file"));
}

TEST(DoctorChecks, WorkersThatNeedAttentionAreNamed) {
  v1::ListWorkersResponse workers;
  const auto add = [&](const char* name) {
    v1::WorkerInfo& worker = *workers.add_workers();
    worker.set_name(name);
    worker.set_version("1");
    worker.set_connected(true);
    return &worker;
  };
  const auto examine = [&] { return only_problem(examine_workers(workers, "1", 1024)); };
  EXPECT_THAT(examine(), HasSubstr("no worker is registered"));
  add("node0");
  EXPECT_EQ(examine(), "");
  v1::WorkerInfo* worker = add("node1");
  worker->set_version("0");
  EXPECT_THAT(examine(), HasSubstr("worker versions: 1 worker (node1) with another version"));
  worker->set_version("1");
  worker->set_heartbeat_age_seconds(31);
  EXPECT_THAT(examine(), HasSubstr("connections: 1 worker (node1) away or silent"));
  worker->set_heartbeat_age_seconds(1);
  worker->mutable_exclusion()->set_cause("worker lost");
  EXPECT_THAT(examine(), HasSubstr("nodes: 1 worker (node1) left out"));
  worker->clear_exclusion();
  EXPECT_THAT(only_problem(examine_workers(workers, "1", 100)), HasSubstr("2 workers need 130"));
  for (int i = 0; i < 7; ++i) add("away")->set_connected(false);
  EXPECT_THAT(examine(), HasSubstr("7 workers (away, away, away, away, away, …)"));
}

}  // namespace
}  // namespace muster::cli

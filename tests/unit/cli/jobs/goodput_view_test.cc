#include "cli/jobs/goodput_view.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "cli/jobs/recovery_view.h"
#include "daemon/json/incident_json.h"

namespace muster::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

void add_loss(v1::Goodput& goodput, const char* cause, const char* what, int64_t seconds) {
  v1::Goodput::Loss& loss = *goodput.add_losses();
  loss.set_cause(cause);
  loss.set_what(what);
  loss.set_ns(seconds * kSecond);
}

v1::Job job_with_a_hang(uint64_t id) {
  v1::Job job;
  job.set_id(id);
  job.mutable_spec()->set_name("llama");
  job.set_state(v1::RUNNING);
  v1::Goodput& goodput = *job.mutable_goodput();
  goodput.set_queued_ns(4 * kSecond);
  goodput.set_wall_ns(8'000 * kSecond);
  goodput.set_productive_ns(7'784 * kSecond);
  add_loss(goodput, "hang", "recomputing", 100);
  add_loss(goodput, "none", "loading", 60);
  add_loss(goodput, "hang", "standing still", 50);
  add_loss(goodput, "rank died", "loading", 6);
  return job;
}

TEST(GoodputView, TheLineNamesTheLargestLosses) {
  EXPECT_EQ(goodput_line(job_with_a_hang(7).goodput()),
            "goodput 97.3% of 2h 13m; lost: hang 2m 30s, loading 1m 00s, rank died 6.0s");
  EXPECT_EQ(goodput_line(v1::Goodput()), "");
  EXPECT_EQ(goodput_percent(v1::Goodput()), "-");
}

TEST(GoodputView, EachHourHasTheSameWeightAcrossJobs) {
  v1::Job idle = job_with_a_hang(8);
  idle.mutable_goodput()->set_wall_ns(2'000 * kSecond);
  idle.mutable_goodput()->set_productive_ns(0);
  const v1::Goodput all = goodput_of_all({job_with_a_hang(7), idle});
  EXPECT_EQ(goodput_percent(all), "77.8%");
  EXPECT_EQ(all.losses(0).cause(), "hang");
  EXPECT_EQ(all.losses(0).ns(), 200 * kSecond);
}

TEST(GoodputView, TheTableHasLossesByCauseAndActivity) {
  EXPECT_EQ(describe_goodput({job_with_a_hang(7)}),
            R"(JOB  NAME   STATE    GOODPUT  SINCE START  QUEUED  LOST    MOSTLY BY
7    llama  RUNNING  97.3%    2h 13m       4.0s    3m 36s  hang 2m 30s, loading 1m 00s, rank died 6.0s

LOST AFTER  TOTAL   RECOMPUTING  LOADING  STANDING STILL
hang        2m 30s  1m 40s       -        50s
no fault    1m 00s  -            1m 00s   -
rank died   6.0s    -            6.0s     -
)");
  EXPECT_THAT(describe_goodput({job_with_a_hang(7), job_with_a_hang(8)}), HasSubstr("all  2 jobs"));
}

TEST(GoodputView, JsonHasSeconds) {
  const nlohmann::json all = goodput_report_to_json({job_with_a_hang(7)});
  EXPECT_DOUBLE_EQ(all["all"]["ettr"], 0.973);
  EXPECT_EQ(all["jobs"][0]["id"], 7);
  EXPECT_DOUBLE_EQ(all["jobs"][0]["goodput"]["losses"][1]["seconds"], 60);
}

v1::Incident incident_with_recovery() {
  v1::Incident incident;
  v1::Recovery& recovery = *incident.mutable_recovery();
  constexpr int64_t kBegin = 1'700'000'000 * kSecond;
  recovery.set_progress_unix_ns(kBegin);
  recovery.set_detected_unix_ns(kBegin + 9 * kSecond / 10);
  recovery.set_decided_unix_ns(kBegin + kSecond);
  recovery.set_first_step_unix_ns(kBegin + 21 * kSecond / 10);
  recovery.set_best_step(21);
  recovery.set_restored_step(17);
  recovery.set_attempts(1);
  return incident;
}

TEST(RecoveryView, IsOneLineOfTimes) {
  EXPECT_THAT(
      describe_recovery(incident_with_recovery()),
      ElementsAre("recovery: last progress -> detected 0.9s -> decided 1.0s -> first step 2.1s",
                  "resumed from step 17 of 21: 4 made again"));
  EXPECT_EQ(time_to_recover(incident_with_recovery()), "2.1s");
  EXPECT_THAT(describe_recovery(v1::Incident()), IsEmpty());
  EXPECT_EQ(time_to_recover(v1::Incident()), "-");
}

TEST(RecoveryView, NamesTheInterruptingIncident) {
  v1::Incident incident = incident_with_recovery();
  incident.mutable_recovery()->set_interrupted_by(9);
  EXPECT_EQ(describe_recovery(incident).back(), "recovery was interrupted by incident 9");
}

TEST(RecoveryView, JsonHasTheKnownMoments) {
  const nlohmann::json recovery = daemon::recovery_to_json(incident_with_recovery());
  EXPECT_EQ(recovery["steps_lost"], 4);
  EXPECT_EQ(recovery["first_step_unix_ns"], 1'700'000'002'100'000'000);
  EXPECT_FALSE(recovery.contains("up_unix_ns"));
  EXPECT_TRUE(daemon::recovery_to_json(v1::Incident()).is_null());
}

}  // namespace
}  // namespace muster::cli

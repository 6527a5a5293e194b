#include "cli/jobs/job_updates.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Job job(v1::JobState state, const std::string& reason, uint32_t attempt = 1) {
  v1::Job job;
  job.set_id(7);
  job.mutable_spec()->set_name("first");
  job.set_state(state);
  job.set_reason(reason);
  job.set_attempt(attempt);
  return job;
}

TEST(JobUpdates, EachChangeOnce) {
  JobUpdates notice;
  EXPECT_THAT(notice.update(job(v1::RUNNING, "up")), ElementsAre("job 7 (first) RUNNING: up"));
  EXPECT_THAT(notice.update(job(v1::RUNNING, "up")), IsEmpty());
  EXPECT_THAT(notice.update(job(v1::RUNNING, "up", 2)), ElementsAre(HasSubstr("attempt 2")));
}

TEST(JobUpdates, FaultsComeFirstAndOnce) {
  JobUpdates notice;
  v1::Job faulty = job(v1::RESTARTING, "restarting");
  v1::Fault* fault = faulty.add_faults();
  fault->set_rank(2);
  fault->set_worker("node0");
  fault->set_signal(9);
  fault->set_last_step(120);
  fault->set_unix_ns(5);
  EXPECT_THAT(
      notice.update(faulty),
      ElementsAre(
          "fault at step 120: rank 2 on node0 was killed by signal 9 (SIGKILL) after step 120",
          HasSubstr("RESTARTING")));
  EXPECT_THAT(notice.update(faulty), IsEmpty());
}

TEST(JobUpdates, AnIncidentIsReportedOnceWithItsCommand) {
  JobUpdates notice(" --coordinator h:1");
  v1::Job slow = job(v1::RUNNING, "up");
  slow.mutable_incident()->set_id(3);
  slow.mutable_incident()->set_sentence("rank 2 is\x1b slow");
  EXPECT_THAT(
      notice.update(slow),
      ElementsAre("incident 3: rank 2 is\\x1b slow (muster incident show 3 --coordinator h:1)",
                  HasSubstr("RUNNING")));
  slow.mutable_incident()->set_sentence("rank 2 is slow in read()");
  EXPECT_THAT(notice.update(slow), IsEmpty()) << "more is learned of it; it is the same one";

  v1::Job hung = slow;
  hung.set_state(v1::RESTARTING);
  hung.set_reason("restart 1 of 3: hang: rank 1 never came");
  hung.mutable_incident()->set_id(4);
  hung.mutable_incident()->set_sentence("rank 1 never came");
  hung.add_faults()->set_message("hang: rank 1 never came");
  hung.mutable_faults(0)->set_last_step(41);
  hung.mutable_faults(0)->set_unix_ns(5);
  EXPECT_THAT(notice.update(hung),
              ElementsAre("fault at step 41: hang: rank 1 never came (muster incident show 4 "
                          "--coordinator h:1)",
                          "job 7 (first) RESTARTING: restart 1 of 3: the fault above"));
}

TEST(JobUpdates, TheTextOfAFaultAppearsOnce) {
  JobUpdates notice;
  v1::Job faulty = job(v1::RESTARTING, "attempt 1 ended: the loss is nan");
  v1::Fault* fault = faulty.add_faults();
  fault->set_last_step(-1);
  fault->set_message("the loss is nan");
  fault->set_unix_ns(5);
  EXPECT_THAT(notice.update(faulty),
              ElementsAre("fault: the loss is nan",
                          "job 7 (first) RESTARTING: attempt 1 ended: the fault above"));
  *faulty.add_faults() = faulty.faults(0);
  faulty.mutable_faults(1)->set_unix_ns(6);
  faulty.set_state(v1::FAILED);
  faulty.set_reason("the loss is nan");
  EXPECT_THAT(notice.update(faulty),
              ElementsAre("fault: the same again", "job 7 (first) FAILED: the fault above"));
}

}  // namespace
}  // namespace muster::cli

#include "coordinator/core/recovery/revisions.h"

#include <gtest/gtest.h>

#include "common/process/exit_code.h"
#include "coordinator/core/recovery/rank_faults.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

// A job whose third revision is on trial, after the second one was replaced during its trial.
Job job_on_trial() {
  Job job;
  job.spec.restarts_max = 3;
  job.attempt = Attempt(2);
  job.revision = job.newest_revision = 3;
  job.revisions = {{2, "command=v2", "r2", 0, "replaced during its trial"},
                   {3, "command=v3", "r3", 0, ""}};
  job.trial = Trial{job.spec, 1, 20};
  job.trial->former.command = {"v1"};
  return job;
}

Fault fault_in(int32_t revision, int32_t exit_code, int32_t signal = 0) {
  Fault fault;
  fault.rank = Rank(0);
  fault.worker = WorkerName("n1");
  fault.message = "rank 0 ended";
  fault.exit_code = exit_code;
  fault.signal = signal;
  fault.revision = revision;
  return fault;
}

TEST(Revisions, AFaultOfOpenOriginIsTriedOnceMore) {
  const int32_t peer_lost = to_int(ExitCode::kPeerLost);
  for (const auto& [exit_code, signal] : {std::pair(peer_lost, 0), {-1, 9}, {-1, 7}}) {
    Job job = job_on_trial();
    job.faults = {fault_in(2, exit_code, signal), fault_in(3, exit_code, signal)};
    EXPECT_TRUE(decide_restart(job).restart) << exit_code << " " << signal;
    EXPECT_FALSE(decide_restart(job).rolls_back) << exit_code << " " << signal;
    job.faults.push_back(fault_in(3, exit_code, signal));
    EXPECT_TRUE(decide_restart(job).rolls_back) << exit_code << " " << signal;
    // Without restarts, the job would end instead.
    job.faults.pop_back();
    job.spec.restarts_max = 0;
    EXPECT_TRUE(decide_restart(job).rolls_back) << exit_code << " " << signal;
  }
  Job job = job_on_trial();
  job.faults = {fault_in(3, -1, 11)};
  EXPECT_TRUE(decide_restart(job).rolls_back);
}

TEST(Revisions, AFaultFromElsewhereEndsNoTrial) {
  Job job = job_on_trial();
  job.faults = {fault_in(3, 1), fault_in(3, 1)};
  for (Fault& fault : job.faults) fault.is_unreported = true;
  EXPECT_FALSE(may_fail_trial(job));
  job.faults.back().is_unreported = false;
  EXPECT_TRUE(fails_trial(job));
  job.faults.back().revision = 2;
  EXPECT_FALSE(may_fail_trial(job)) << "a fault before the trial";
  job.faults = {fault_in(3, 1)};
  job.trial->first_step = 40;
  job.trial->newest_step = 60;
  EXPECT_FALSE(may_fail_trial(job)) << "the trial is over";
}

TEST(Revisions, AJobThatIsBeyondTheFormerStepsDoesNotReturnToThem) {
  Job job = job_on_trial();
  job.spec.steps = 2000;
  job.trial->former.steps = 1000;
  job.faults = {fault_in(3, -1, 11)};
  job.faults.back().job_step = 999;
  EXPECT_TRUE(decide_restart(job).rolls_back);
  job.faults.back().job_step = 1000;
  EXPECT_FALSE(decide_restart(job).rolls_back);
  EXPECT_TRUE(decide_restart(job).restart) << "it is an ordinary fault";
  EXPECT_TRUE(decide_restart(job).reason.ends_with(
      "; the job does not return to revision 1, because it is beyond the last step of that "
      "revision, 1000"))
      << decide_restart(job).reason;
  job.spec.restarts_max = 0;
  EXPECT_FALSE(decide_restart(job).restart);
  job.trial->former.steps = 2000;
  EXPECT_TRUE(decide_restart(job).rolls_back) << "the update changed no steps";
}

TEST(Revisions, ARollbackUndoesTheRevisionsThatWereReplacedInTheTrial) {
  Job job = job_on_trial();
  job.faults = {fault_in(3, 1)};
  roll_back(job);
  EXPECT_EQ(job.revision, 1);
  EXPECT_EQ(job.spec.command, std::vector<std::string>{"v1"});
  ASSERT_EQ(job.revisions.size(), 2U);
  EXPECT_TRUE(job.revisions[0].is_undone);
  EXPECT_EQ(job.revisions[0].end, "replaced during its trial; rolled back with revision 3");
  EXPECT_TRUE(job.revisions[1].is_undone);
}

TEST(Revisions, NotesAreBoundedAndThatOfTheRevisionStays) {
  Job job = job_on_trial();
  for (int32_t i = 4; i < 100; ++i) {
    job.update = JobUpdate{{i, "command=v", "r", 0, ""}, job.spec};
    drop_update(job, std::string(kWithdrawn));
  }
  EXPECT_EQ(job.revisions.size(), kRevisionsKeptMax);
  EXPECT_EQ(job.revisions.front().revision, 3);
  EXPECT_TRUE(was_withdrawn(job, 99));
  EXPECT_FALSE(was_withdrawn(job, 3));
}

}  // namespace
}  // namespace muster::coordinator

// GetJobHistory: the attempts of a job, with the current one.
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {
namespace {

class HistoryTest : public ShellTest {
 protected:
  v1::GetJobHistoryResponse history(uint64_t job, uint32_t limit = 0, uint32_t before = 0) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::GetJobHistoryRequest request;
    request.set_job_id(job);
    request.set_limit(limit);
    request.set_before_attempt(before);
    v1::GetJobHistoryResponse response;
    status_ = muster_->GetJobHistory(&context, request, &response);
    return response;
  }

  grpc::Status status_;
};

TEST_F(HistoryTest, HasEndedAttemptsAndTheCurrentOne) {
  FakeWorker worker(*fleet_);
  worker.send(registration("node7", 1, 2));
  ASSERT_TRUE(worker.next().has_registered());
  v1::SubmitJobRequest request = submission("a", 2);
  request.mutable_spec()->set_restarts_max(5);
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());
  for (uint32_t attempt = 1; attempt <= 2; ++attempt) {
    v1::CoordinatorMessage order;
    while (!(order = worker.next()).has_start_ranks()) ASSERT_TRUE(order.ByteSizeLong() > 0);
    ASSERT_EQ(order.start_ranks().attempt(), attempt);
    worker.heartbeat(job.id(), attempt, 2, 3 * attempt);
    if (attempt == 1)
      for (int rank = 0; rank < 2; ++rank) worker.exited(job.id(), attempt, rank, 1);
  }
  for (int tries = 0; tries < 500; ++tries) {
    ASSERT_TRUE(get(job.id(), &job).ok());
    if (job.state() == v1::RUNNING && job.ranks(0).step() == 6) break;
    usleep(10'000);
  }

  const v1::GetJobHistoryResponse all = history(job.id());
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  ASSERT_EQ(all.attempts_size(), 2);
  EXPECT_FALSE(all.more());
  const v1::JobAttempt& current = all.attempts(0);
  EXPECT_EQ(current.attempt(), 2U);
  EXPECT_EQ(current.ended_unix_ns(), 0);
  EXPECT_EQ(current.last_step(), 6);
  EXPECT_GE(current.up_unix_ns(), current.started_unix_ns());
  const v1::JobAttempt& first = all.attempts(1);
  EXPECT_EQ(first.attempt(), 1U);
  EXPECT_EQ(first.nodes(), 1);
  EXPECT_EQ(first.ranks(), 2);
  EXPECT_EQ(first.workers(), "node7");
  EXPECT_EQ(first.last_step(), 3);
  EXPECT_GE(first.ended_unix_ns(), first.started_unix_ns());
  EXPECT_NE(first.end().find("exited with code 1"), std::string::npos) << first.end();
  EXPECT_EQ(first.incident_id(), job.incident().id());

  EXPECT_EQ(history(job.id(), 1).attempts_size(), 1);
  EXPECT_TRUE(history(job.id(), 1).more());
  ASSERT_EQ(history(job.id(), 0, 2).attempts_size(), 1);
  EXPECT_EQ(history(job.id(), 0, 2).attempts(0).attempt(), 1U);

  for (int rank = 0; rank < 2; ++rank) worker.exited(job.id(), 2, rank, 0);
  for (int tries = 0; tries < 500 && job.state() != v1::SUCCEEDED; ++tries) {
    ASSERT_TRUE(get(job.id(), &job).ok());
    usleep(10'000);
  }
  restart();
  const v1::GetJobHistoryResponse ended = history(job.id());
  ASSERT_EQ(ended.attempts_size(), 2) << "the coordinator was restarted";
  EXPECT_EQ(ended.attempts(0).end(), job.reason());
  EXPECT_EQ(ended.attempts(0).incident_id(), 0U);
  EXPECT_EQ(ended.attempts(1).end(), first.end());

  history(job.id() + 1);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace muster::coordinator

// Workers' streams over real gRPC on loopback: admission, and what each stream may send.
#include <gmock/gmock.h>
#include <unistd.h>

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

TEST_F(ShellTest, RefusesWorkersThatDoNotFit) {
  FakeWorker first(*fleet_);
  first.send(registration("node1", 1, 4));
  EXPECT_EQ(first.next().registered().heartbeat_interval_ms(), 1000);

  FakeWorker second(*fleet_);
  second.send(registration("node1", 2, 4));
  grpc::Status status = second.end();
  EXPECT_EQ(status.error_code(), grpc::ALREADY_EXISTS);
  EXPECT_THAT(status.error_message(), HasSubstr("node1 is already connected"));

  FakeWorker other_version(*fleet_);
  v1::WorkerMessage message = registration("node2", 3, 4);
  message.mutable_register_()->set_version("0.0.1");
  other_version.send(message);
  status = other_version.end();
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              HasSubstr("version 0.0.1 and the coordinator is version test"));

  FakeWorker rude(*fleet_);
  rude.heartbeat(1, 1, 1, 1);
  EXPECT_EQ(rude.end().error_code(), grpc::INVALID_ARGUMENT);

  // The first one is undisturbed.
  EXPECT_TRUE(submit(submission("a", 4)).ok());
  EXPECT_EQ(first.next().start_ranks().ranks_size(), 4);
}

TEST_F(ShellTest, ALogIsWrittenOnlyByTheWorkerOfItsRank) {
  FakeWorker owner(*fleet_);
  owner.send(registration("node1", 1, 1));
  owner.next();
  v1::Job job;
  ASSERT_TRUE(submit(submission("a", 1), &job).ok());
  ASSERT_TRUE(owner.next().has_start_ranks());
  FakeWorker stranger(*fleet_);
  stranger.send(registration("node2", 2, 1));
  stranger.next();
  stranger.log(job.id(), 1, 0, 0, "forged\n");
  EXPECT_EQ(stranger.next().log_ack().offset(), 7U);  // accepted, and dropped
  owner.log(job.id(), 1, 0, 0, "true\n");
  EXPECT_EQ(owner.next().log_ack().offset(), 5U);
  EXPECT_EQ(log_of(job.id()), "true\n");

  FakeWorker unregistered(*fleet_);
  unregistered.log(job.id(), 1, 0, 5, "forged\n");
  EXPECT_EQ(unregistered.end().error_code(), grpc::INVALID_ARGUMENT);
  FakeWorker refused(*fleet_);  // claims the owner's name and incarnation, but is never admitted
  v1::WorkerMessage message = registration("node1", 1, 1);
  message.mutable_register_()->set_version("0.0.1");
  refused.send(message);
  refused.log(job.id(), 1, 0, 5, "forged\n");
  EXPECT_FALSE(refused.end().ok());
  EXPECT_EQ(log_of(job.id()), "true\n");
}

TEST_F(ShellTest, ALeavingWorkersJobsAreStoppedAndItGetsNoOther) {
  FakeWorker leaver(*fleet_);
  leaver.send(registration("node1", 1, 1));
  leaver.next();
  v1::Job job;
  ASSERT_TRUE(submit(submission("a", 1), &job).ok());
  ASSERT_TRUE(leaver.next().has_start_ranks());
  v1::WorkerMessage message;
  message.mutable_leaving()->set_grace_ms(7'000);
  leaver.send(message);
  const v1::StopRanks stop = leaver.next().stop_ranks();
  EXPECT_EQ(stop.grace_ms(), 7'000);
  EXPECT_EQ(stop.reason(), "worker node1 is leaving");
  leaver.exited(job.id(), 1, 0, 75);
  EXPECT_TRUE(leaver.next().has_report_ack());

  FakeWorker other(*fleet_);
  v1::WorkerMessage late = registration("node2", 2, 1);
  late.mutable_register_()->mutable_leaving()->set_grace_ms(1);
  other.send(late);
  EXPECT_TRUE(other.next().has_registered());
  FakeWorker third(*fleet_);
  third.send(registration("node3", 3, 1));
  EXPECT_TRUE(third.next().has_registered());
  EXPECT_TRUE(third.next().has_start_ranks());
}

TEST_F(ShellTest, EndsStreamsThatDoNotRegister) {
  registration_budget_ = std::chrono::milliseconds(200);
  restart();
  // On a busy machine a registration may arrive too late; its stream is then ended like a silent
  // one.
  std::optional<FakeWorker> registered;
  bool is_in = false;
  for (int tries = 0; tries < 100 && !is_in; ++tries) {
    registered.emplace(*fleet_);
    registered->send(registration("node1", 1, 1));
    is_in = registered->next().has_registered();
  }
  ASSERT_TRUE(is_in);
  // The silent worker connects later, so that its end is also after the registration budget of the
  // other worker.
  FakeWorker silent(*fleet_);
  const grpc::Status status = silent.end();
  EXPECT_EQ(status.error_code(), grpc::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("did not register within 0.2 s"));
  EXPECT_TRUE(submit(submission("a", 1)).ok());
  EXPECT_TRUE(registered->next().has_start_ranks());
}

// The fault that was reported: connections that were idle after the HTTP/2 preface stayed open.
TEST_F(ShellTest, EndsConnectionsWithoutACall) {
  idle_connection_ = std::chrono::milliseconds(300);
  restart();
  FakeWorker worker(*fleet_);
  worker.send(registration("node1", 1, 1));
  ASSERT_TRUE(worker.next().has_registered());
  RawConnection idle(server_->grpc_port());
  const std::string empty_settings("\0\0\0\4\0\0\0\0\0", 9);
  idle.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + empty_settings);
  const Instant begin = monotonic_now();
  EXPECT_NE(idle.receive_all(), "") << "the server's settings";
  EXPECT_LT(monotonic_now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(submit(submission("a", 1)).ok());
  EXPECT_TRUE(worker.next().has_start_ranks()) << "a stream is a call";
}

TEST_F(ShellTest, ANewIncarnationTakesOverOnceTheOldOneIsGone) {
  {
    FakeWorker first(*fleet_);
    first.send(registration("node1", 1, 4));
    EXPECT_TRUE(first.next().has_registered());
  }
  for (int attempt = 0; attempt < 100;
       ++attempt) {  // the coordinator detects the broken stream with a short delay
    FakeWorker second(*fleet_);
    second.send(registration("node1", 2, 4));
    if (second.next().has_registered()) return;
    usleep(20'000);
  }
  FAIL() << "the second worker was never registered";
}

// A refused registration affects only its own stream.
TEST_F(ShellTest, AnImpostorDoesNotDisturbALiveWorker) {
  FakeWorker live(*fleet_);
  live.send(registration("node1", 1, 2));
  EXPECT_TRUE(live.next().has_registered());
  ASSERT_TRUE(submit(submission("a", 2)).ok());
  ASSERT_TRUE(live.next().has_start_ranks());
  live.heartbeat(1, 1, 2, 3);

  FakeWorker impostor(*fleet_);
  v1::WorkerMessage message = registration("node1", 1, 2);
  message.mutable_register_()->set_version("0.0.1");
  impostor.send(message);
  impostor.heartbeat(1, 1, 2, 99);
  impostor.exited(1, 1, 0, 1);
  EXPECT_EQ(impostor.end().error_code(), grpc::FAILED_PRECONDITION);

  live.heartbeat(1, 1, 2, 4);
  live.log(1, 1, 0, 0, "still here\n");
  EXPECT_EQ(live.next().log_ack().offset(), 11U)
      << "the stream is open, and received no other message";
  live.exited(1, 1, 0, 0);
  EXPECT_TRUE(live.next().has_report_ack());
  v1::Job job;
  ASSERT_TRUE(get(1, &job).ok());
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_EQ(job.ranks(0).step(), 4);
  live.exited(1, 1, 1, 0);
  EXPECT_TRUE(live.next().has_report_ack());
  ASSERT_TRUE(get(1, &job).ok());
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
}

TEST_F(ShellTest, AWorkerThatReconnectsTakesItsOwnStreamOver) {
  FakeWorker first(*fleet_);
  first.send(registration("node1", 1, 1));
  EXPECT_TRUE(first.next().has_registered());
  FakeWorker second(*fleet_);
  second.send(registration("node1", 1, 1));
  EXPECT_TRUE(second.next().has_registered());
  EXPECT_EQ(first.end().error_code(), grpc::ABORTED);
  ASSERT_TRUE(submit(submission("a", 1)).ok());
  EXPECT_TRUE(second.next().has_start_ranks());
}

}  // namespace
}  // namespace muster::coordinator

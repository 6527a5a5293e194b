// The client against a coordinator that the test implements: a real gRPC server.
#include "cli/client.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "daemon/limits.h"

namespace muster::cli {
namespace {

class FakeCoordinator : public v1::Muster::Service {
 public:
  FakeCoordinator() { start(); }
  ~FakeCoordinator() override { stop(); }

  // Starts on a free port; later calls use the same one.
  void start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override {
    const std::lock_guard lock(mutex_);
    request_ids.push_back(request->request_id());
    // The job is accepted, but the answer is lost.
    if (request_ids.size() == 1) return {grpc::StatusCode::UNAVAILABLE, "leaving"};
    response->mutable_job()->set_id(7);
    return grpc::Status::OK;
  }

  // Refuses `overloaded` reads, as an overloaded coordinator does.
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest*,
                        v1::ListJobsResponse* response) override {
    if (const grpc::Status status = refuse(context); !status.ok()) return status;
    response->add_jobs()->set_id(7);
    return grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::Job>* writer) override {
    if (const grpc::Status status = refuse(context); !status.ok()) return status;
    writer->Write(v1::Job());
    return grpc::Status::OK;
  }
  grpc::Status refuse(grpc::ServerContext* context) {
    const std::lock_guard lock(mutex_);
    ++reads;
    if (overloaded == 0) return grpc::Status::OK;
    --overloaded;
    if (!hint.empty()) context->AddTrailingMetadata(daemon::kRetryHint, hint);
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "the coordinator is overloaded"};
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::Job* job) override {
    job->set_state(v1::CANCELLED);
    return grpc::Status::OK;
  }
  // Blocks until the call is cancelled, unless the job is.
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest*,
                         v1::CancelJobResponse*) override {
    if (has_cancelled) return {grpc::StatusCode::FAILED_PRECONDITION, "the job has ended"};
    {
      const std::lock_guard lock(mutex_);
      is_called = true;
    }
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return grpc::Status::CANCELLED;
  }
  int reads_so_far() {
    const std::lock_guard lock(mutex_);
    return reads;
  }
  bool was_called() {
    const std::lock_guard lock(mutex_);
    return is_called;
  }

  std::vector<std::string> request_ids;
  bool is_called = false;
  bool has_cancelled = false;
  int overloaded = 0;
  int reads = 0;
  std::string hint = "1";  // milliseconds

 private:
  std::mutex mutex_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The service of the test lacks the method, as a coordinator of an earlier version does.
TEST(Client, ACallThatAnEarlierCoordinatorLacksNamesTheReason) {
  const FakeCoordinator coordinator;
  Client client({.address = coordinator.address()});
  const auto job = client.update_job(v1::UpdateJobRequest());
  EXPECT_TRUE(absl::IsUnimplemented(job.status())) << job.status();
  EXPECT_EQ(job.status().message(), absl::StrCat("the coordinator at ", coordinator.address(),
                                                 " is older than this command: update it"));
}

TEST(Client, ASubmissionWithALostAnswerIsRepeatedWithItsId) {
  FakeCoordinator coordinator;
  Client client({.address = coordinator.address()});
  int losses = 0;
  const auto job = submit_with_repeats(client, v1::JobSpec(), "the-id", std::chrono::minutes(1),
                                       [&](const absl::Status& loss) {
                                         EXPECT_TRUE(absl::IsUnavailable(loss)) << loss;
                                         ++losses;
                                         coordinator.stop();  // the coordinator restarts
                                         coordinator.start();
                                       });
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id(), 7U);
  EXPECT_EQ(losses, 1);
  EXPECT_EQ(coordinator.request_ids, (std::vector<std::string>{"the-id", "the-id"}));
}

TEST(Client, ReadsThatAnOverloadedCoordinatorRefusesAreRepeatedAndExplained) {
  FakeCoordinator coordinator;
  Client client({.address = coordinator.address()});
  coordinator.overloaded = 3;
  testing::internal::CaptureStderr();
  const auto jobs = client.list_jobs(false, false);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_EQ(jobs->jobs(0).id(), 7U);
  EXPECT_EQ(coordinator.reads, 4);
  coordinator.overloaded = 1;
  int watched = 0;
  EXPECT_TRUE(client.watch_job(7, [&](const v1::Job&) { return ++watched > 0; }).ok());
  EXPECT_EQ(watched, 1);
  EXPECT_EQ(coordinator.reads, 6);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "muster: the coordinator is overloaded; trying again for up to 60 s\n")
      << "once";
}

// A limit that no waiting changes, or a coordinator of an earlier version.
// Equal pauses would bring all refused callers back at the same moment.
TEST(Client, PausesBeforeRepetitionsDifferBetweenCallers) {
  constexpr Duration kHint = std::chrono::seconds(2);
  constexpr Duration kMost = std::chrono::seconds(10);
  for (int repeats = 0; repeats < 100; ++repeats) {
    const Duration least = pause_before_repeat(kHint, repeats, 0);
    const Duration most = pause_before_repeat(kHint, repeats, 1);
    EXPECT_EQ(least, kHint) << "not before the coordinator permits it";
    EXPECT_GE(most, 2 * kHint) << repeats;
    EXPECT_LE(most, kMost) << repeats;
    EXPECT_EQ(pause_before_repeat(kHint, repeats, 0.5), (least + most) / 2);
  }
  EXPECT_EQ(pause_before_repeat(kHint, 3, 1), kMost) << "they grow";
}

TEST(Client, ARefusalWithoutAHintIsNotRepeated) {
  FakeCoordinator coordinator;
  coordinator.overloaded = 1;
  coordinator.hint.clear();
  Client client({.address = coordinator.address()});
  EXPECT_TRUE(absl::IsResourceExhausted(client.list_jobs(false, false).status()));
  EXPECT_EQ(coordinator.reads, 1);
}

TEST(Client, AStopEndsThePauseBeforeARepetition) {
  FakeCoordinator coordinator;
  coordinator.overloaded = 1'000;
  coordinator.hint = "10000000";
  Client client({.address = coordinator.address()});
  std::thread stopper([&] {
    while (coordinator.reads_so_far() == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    client.stop();
  });
  EXPECT_TRUE(absl::IsCancelled(client.list_jobs(false, false).status()));
  stopper.join();
}

// The address may never have had a coordinator.
TEST(Client, AnUnreachableAddressIsReportedDuringRetries) {
  Client client({.address = "127.0.0.1:1"});
  std::string printed;
  const absl::Status status = with_reconnection(
      client, [&] { return client.get_job(7).status(); },
      [&](const absl::Status& loss) {
        printed = loss_text(loss);
        client.stop();
      });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(printed,
            "no coordinator answers at 127.0.0.1:1 (Connection refused); trying again for 60 s");
}

TEST(Client, ASubmissionFailsAfterItsPatience) {
  FakeCoordinator coordinator;
  coordinator.stop();
  Client client({.address = coordinator.address()});
  const auto job = submit_with_repeats(client, v1::JobSpec(), "the-id", Duration::zero(),
                                       [](const absl::Status&) { FAIL() << "no repeat follows"; });
  EXPECT_TRUE(absl::IsUnavailable(job.status())) << job.status();
}

// A port whose host accepts connections, as that of a stopped process, and that never answers.
class SilentPort {
 public:
  SilentPort() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, generic, size), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    EXPECT_EQ(getsockname(fd_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentPort() { close(fd_); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
};

// The leader of several coordinators is the one that answers.
TEST(Client, ACallGoesToTheCoordinatorThatLeads) {
  const SilentPort stopped;
  FakeCoordinator leader, next;
  next.stop();
  Client client({.address = absl::StrCat("127.0.0.1:1,", stopped.address(), ",", leader.address(),
                                         ",", next.address())});
  EXPECT_TRUE(client.list_jobs(false, false).ok());
  EXPECT_EQ(*client.address(), leader.address());
  leader.stop();
  next.start();
  EXPECT_TRUE(client.list_jobs(false, false).ok());
  EXPECT_EQ(*client.address(), next.address());
  EXPECT_EQ(leader.reads + next.reads, 2);
}

// The leader has cancelled the job, and stops before it answers.
TEST(Client, ACancellationWithALostAnswerIsRepeatedAtTheNextLeader) {
  FakeCoordinator leader, next;
  next.stop();
  next.has_cancelled = true;
  Client client({.address = absl::StrCat(leader.address(), ",", next.address())});
  absl::StatusOr<v1::Job> job;
  std::jthread caller([&] { job = client.cancel_job(7, false); });
  while (!leader.was_called()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  leader.stop();
  next.start();
  caller.join();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::CANCELLED);
  EXPECT_TRUE(absl::IsFailedPrecondition(client.cancel_job(7, false).status()))
      << "a first call is no repetition";
}

TEST(Client, AStreamContinuesAtTheNextLeader) {
  FakeCoordinator leader, next;
  next.stop();
  Client client({.address = absl::StrCat(leader.address(), ",", next.address())});
  int jobs = 0;
  const auto stream = [&] {
    const absl::Status status = client.watch_job(7, [&](const v1::Job&) {
      ++jobs;
      return true;
    });
    return jobs == 1 ? absl::UnavailableError("the leader is gone") : status;
  };
  const absl::Status status = with_reconnection(client, stream, [&](const absl::Status&) {
    leader.stop();
    next.start();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(jobs, 2);
}

TEST(Client, AListWithoutALeaderEndsItsSearch) {
  const SilentPort stopped;
  Client client({.address = "127.0.0.1:1," + stopped.address()});
  EXPECT_FALSE(client.wait_for_connection());
  absl::Status found;
  std::jthread caller([&] { found = client.address().status(); });
  client.stop();
  caller.join();
  EXPECT_TRUE(absl::IsCancelled(found)) << found;
}

TEST(Client, StopCancelsRunningAndLaterCalls) {
  FakeCoordinator coordinator;
  Client client({.address = coordinator.address()});
  absl::Status printed;
  std::jthread caller([&] { printed = client.cancel_job(1, false).status(); });
  while (!coordinator.was_called()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  client.stop();
  caller.join();
  EXPECT_TRUE(absl::IsCancelled(printed)) << printed;
  EXPECT_TRUE(absl::IsCancelled(client.cancel_job(1, false).status()));
}

}  // namespace
}  // namespace muster::cli

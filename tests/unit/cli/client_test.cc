// The client against a coordinator that the test implements: a real gRPC server.
#include "cli/client.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

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

  // Blocks until the call is cancelled.
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest*,
                         v1::CancelJobResponse*) override {
    {
      const std::lock_guard lock(mutex_);
      is_called = true;
    }
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return grpc::Status::CANCELLED;
  }
  bool was_called() {
    const std::lock_guard lock(mutex_);
    return is_called;
  }

  std::vector<std::string> request_ids;
  bool is_called = false;

 private:
  std::mutex mutex_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

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

// An overloaded coordinator over real gRPC: reads are refused with a hint, everything else is
// served. The test blocks the core loop, so the lag passes the limit however fast the machine is.
#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "coordinator/shell/grpc/fleet_service.h"
#include "coordinator/shell/grpc/muster_service.h"
#include "coordinator/shell/storage/sqlite_storage.h"
#include "daemon/limits.h"
#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

class OverloadShellTest : public testing::Test {
 protected:
  OverloadShellTest() {
    CoreOptions options;
    options.version = "test";
    storage_ = open_sqlite_storage(folder_.path() + "/state.db").value();
    loop_ = std::make_unique<CoreLoop>(
        Core(options, {}, monotonic_now()), *storage_, logs_, metrics_, [](const absl::Status&) {},
        nullptr,
        OverloadLimits{.lag = std::chrono::milliseconds(50),
                       .calm = std::chrono::milliseconds(20)});
    muster_service_ = std::make_unique<MusterService>(*loop_, logs_, shell_, callers_);
    fleet_service_ = std::make_unique<FleetService>(*loop_, logs_, shell_, callers_, Epoch(1),
                                                    std::chrono::seconds(10));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(muster_service_.get());
    fleet_service_->add_to(builder);
    server_ = builder.BuildAndStart();
    fleet_service_->serve();
    const auto channel =
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
    muster_ = v1::Muster::NewStub(channel);
    fleet_ = v1::Fleet::NewStub(channel);
  }
  ~OverloadShellTest() override {
    loop_->stop();
    server_->Shutdown(std::chrono::system_clock::now());
    fleet_service_->stop();
  }

  // Blocks the loop until release(), and waits until it counts as overloaded.
  void overload() {
    std::promise<void> begun;
    const absl::Status status = loop_->query([&](const Core*, Instant) {
      begun.set_value();
      released_.get_future().wait();
    });
    ASSERT_TRUE(status.ok());
    begun.get_future().wait();
    while (loop_->admit_read(monotonic_now()).ok())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void release() { released_.set_value(); }

  // Returns the status of a list, and the retry hint.
  std::pair<grpc::Status, std::string> list() {
    grpc::ClientContext context;
    set_deadline(context);
    v1::ListJobsResponse jobs;
    grpc::Status status = muster_->ListJobs(&context, v1::ListJobsRequest(), &jobs);
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto hint = metadata.find(daemon::kRetryHint);
    return {std::move(status),
            hint == metadata.end() ? "" : std::string(hint->second.data(), hint->second.size())};
  }

  template <class Message, class Open>
  grpc::StatusCode end_of_stream(Open open) {
    grpc::ClientContext context;
    set_deadline(context);
    const auto reader = open(&context);
    Message message;
    while (reader->Read(&message)) {
    }
    return reader->Finish().error_code();
  }

  TempFolder folder_;
  std::unique_ptr<Storage> storage_;
  LogStore logs_{folder_.path(), 1000};
  const std::shared_ptr<ShellMetrics> shell_ = std::make_shared<ShellMetrics>();
  Metrics metrics_{Epoch(1), {.shell = shell_}};
  std::promise<void> released_;
  std::unique_ptr<CoreLoop> loop_;
  Callers callers_{nullptr, nullptr, std::chrono::seconds(15)};
  std::unique_ptr<MusterService> muster_service_;
  std::unique_ptr<FleetService> fleet_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Muster::Stub> muster_;
  std::unique_ptr<v1::Fleet::Stub> fleet_;
};

TEST_F(OverloadShellTest, ReadsAreRefusedAndAllElseIsServed) {
  overload();

  const auto [status, hint] = list();
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("the coordinator is overloaded"));
  EXPECT_EQ(hint, "20");
  EXPECT_EQ(end_of_stream<v1::Job>([&](grpc::ClientContext* context) {
              return muster_->WatchJob(context, v1::WatchJobRequest());
            }),
            grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(end_of_stream<v1::LogChunk>([&](grpc::ClientContext* context) {
              return muster_->FollowLogs(context, v1::FollowLogsRequest());
            }),
            grpc::RESOURCE_EXHAUSTED);

  // These wait for the loop and are not refused.
  FakeWorker worker(*fleet_);
  worker.send(registration("node1", 1, 1));
  auto submitted = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    set_deadline(context);
    v1::SubmitJobResponse response;
    return muster_->SubmitJob(&context, submission("a", 1), &response);
  });
  auto cancelled = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    set_deadline(context);
    v1::CancelJobRequest request;
    request.set_job_id(99);
    v1::CancelJobResponse response;
    return muster_->CancelJob(&context, request, &response);
  });
  const auto waiting = [&] { return loop_->load(monotonic_now()).queued; };
  while (waiting() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  release();
  EXPECT_TRUE(submitted.get().ok());
  EXPECT_EQ(cancelled.get().error_code(), grpc::NOT_FOUND);
  EXPECT_TRUE(worker.next().has_registered());

  // Once it has caught up, reads are answered again.
  while (!list().first.ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string page = shell_->render(loop_->load(monotonic_now()));
  EXPECT_THAT(page, HasSubstr("shed_reads_total{method=\"WatchJob\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("shed_reads_total{method=\"FollowLogs\"} 1\n"));
  EXPECT_THAT(page, testing::Not(HasSubstr("shed_reads_total{method=\"ListJobs\"} 0\n")));
}

}  // namespace
}  // namespace muster::coordinator

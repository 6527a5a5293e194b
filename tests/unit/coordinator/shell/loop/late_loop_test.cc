// Workers' streams while the core loop is late: heartbeats take no place in its queue, and streams
// that wait for it stay open.
#include <future>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "coordinator/shell/grpc/fleet_service.h"
#include "coordinator/shell/storage/sqlite_storage.h"
#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {
namespace {

constexpr int kHeartbeats = 1'000;

class LateLoopTest : public testing::Test {
 protected:
  LateLoopTest() {
    CoreOptions options;
    options.version = "test";
    storage_ = open_sqlite_storage(folder_.path() + "/state.db").value();
    loop_ = std::make_unique<CoreLoop>(Core(options, {}, monotonic_now()), *storage_, logs_,
                                       metrics_, [](const absl::Status&) {});
    service_ = std::make_unique<FleetService>(*loop_, logs_, std::make_shared<ShellMetrics>(),
                                              callers_, Epoch(1), registration_budget_);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    service_->add_to(builder);
    server_ = builder.BuildAndStart();
    service_->serve();
    fleet_ = v1::Fleet::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  ~LateLoopTest() override {
    loop_->stop();
    server_->Shutdown(std::chrono::system_clock::now());
    service_->stop();
  }

  // Occupies the loop until release().
  void occupy() {
    std::promise<void> begun;
    const absl::Status status = loop_->query([&](const Core*, Instant) {
      begun.set_value();
      released_.get_future().wait();
    });
    ASSERT_TRUE(status.ok());
    begun.get_future().wait();
  }
  void release() {
    released_.set_value();
    released_ = {};
  }

  // Returns what `read` returns on the loop's thread, after all earlier events.
  template <class Read>
  auto read(Read read) {
    std::promise<decltype(read(std::declval<const Core&>()))> result;
    EXPECT_TRUE(
        loop_->query([&](const Core* core, Instant) { result.set_value(read(*core)); }).ok());
    return result.get_future().get();
  }

  TempFolder folder_;
  Duration registration_budget_ = std::chrono::milliseconds(300);
  std::unique_ptr<Storage> storage_;
  LogStore logs_{folder_.path(), 1000};
  Metrics metrics_{Epoch(1)};
  std::promise<void> released_;
  std::unique_ptr<CoreLoop> loop_;
  Callers callers_{nullptr, nullptr, std::chrono::seconds(15)};
  std::unique_ptr<FleetService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Fleet::Stub> fleet_;
};

TEST_F(LateLoopTest, MergesTheHeartbeatsOfAWorker) {
  FakeWorker worker(*fleet_);
  worker.send(registration("node1", 1, 2));
  ASSERT_TRUE(worker.next().has_registered());
  JobSubmitted job;
  job.spec.name.assign(1, 'j');
  job.spec.ranks_per_node = 2;
  job.spec.output_directory = "/out";
  ASSERT_TRUE(
      loop_->submit(job, [](const absl::Status&, const Core&, const Job*, Instant) {}).ok());
  ASSERT_TRUE(worker.next().has_start_ranks());

  occupy();
  // The first heartbeat alone has rank 1, whose values do not change afterwards.
  worker.heartbeat(1, 1, 2, 1);
  for (int step = 2; step <= kHeartbeats; ++step) worker.heartbeat(1, 1, 1, step);
  worker.log(1, 1, 0, 0, "x");
  EXPECT_TRUE(worker.next().has_log_ack()) << "the stream has read all heartbeats";
  release();
  const Job after = read([](const Core& core) { return core.jobs().at(JobId(1)); });
  EXPECT_EQ(after.ranks.at(0).step, kHeartbeats);
  EXPECT_EQ(after.ranks.at(1).step, 1);
  EXPECT_EQ(after.state, JobState::kRunning);
  EXPECT_EQ(
      read([](const Core& core) { return core.workers().at(WorkerName("node1")).heartbeats; }), 1)
      << "one event for all heartbeats";
  worker.heartbeat(1, 1, 1, kHeartbeats + 1);
  worker.exited(9, 9, 9, 0);
  EXPECT_TRUE(worker.next().has_report_ack());
  EXPECT_EQ(read([](const Core& core) { return core.jobs().at(JobId(1)).ranks.at(0).step; }),
            kHeartbeats + 1);
}

// The registration budget is for the worker. A stream that ended meanwhile is not registered.
TEST_F(LateLoopTest, ARegistrationWaitsForTheLoopAsLongAsItsStream) {
  occupy();
  FakeWorker patient(*fleet_);
  patient.send(registration("node1", 1, 1));
  {
    FakeWorker impatient(*fleet_);
    impatient.send(registration("node2", 2, 1));
    usleep(100'000);  // the stream has read the registration
  }
  usleep(2 * 300'000);
  release();
  EXPECT_TRUE(patient.next().has_registered());
  EXPECT_EQ(read([](const Core& core) { return core.workers().size(); }), 1U);
}

}  // namespace
}  // namespace muster::coordinator

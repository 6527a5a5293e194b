#include "coordinator/shell/loop/core_loop.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "coordinator/shell/messages/incident_messages.h"
#include "tests/unit/coordinator/shell/full_incident.h"
#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {
namespace {

// Stores until the test makes it fail.
class FlakyStorage final : public Storage {
 public:
  absl::StatusOr<DurableState> load() override { return DurableState{}; }
  absl::Status commit(const StorageBatch& batch) override {
    if (fail && !batch.empty()) return absl::InternalError("disk I/O error");
    if (!batch.empty() && !full_while.empty() && std::filesystem::exists(full_while))
      return absl::ResourceExhaustedError("the disk is full");
    if (!batch.empty() && full > 0) {
      --full;
      return absl::ResourceExhaustedError("the disk is full");
    }
    commits += batch.empty() ? 0 : 1;
    return absl::OkStatus();
  }
  absl::StatusOr<Epoch> begin_epoch() override { return Epoch(1); }
  absl::StatusOr<v1::Incident> incident(IncidentId) override {
    return absl::NotFoundError("there is none");
  }
  absl::StatusOr<std::vector<v1::Incident>> incidents(JobId, size_t) override { return stored; }

  absl::StatusOr<std::vector<v1::JobAttempt>> attempts(JobId, Attempt, size_t) override {
    return std::vector<v1::JobAttempt>{};
  }

  std::atomic<bool> fail{false};
  std::atomic<int> full{0};  // number of failures
  std::string full_while;    // full while this file exists
  std::atomic<int> commits{0};
  std::vector<v1::Incident> stored;
};

class CoreLoopTest : public testing::Test {
 protected:
  CoreLoopTest() {
    CoreOptions options;
    options.version = "test";
    loop_ = std::make_unique<CoreLoop>(
        Core(options, {}, monotonic_now()), storage_, logs_, metrics_,
        [this](const absl::Status& status) { fatal_.set_value(status); });
  }

  absl::Status submit() {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    JobSubmitted event;
    event.spec.name.assign(1, 'j');
    event.spec.output_directory = absl::StrCat("/out/", ++submitted_);
    const absl::Status status =
        loop_->submit(event, [promise](const absl::Status& s, const Core&, const Job*, Instant) {
          promise->set_value(s);
        });
    return status.ok() ? promise->get_future().get() : status;
  }

  int submitted_ = 0;
  TempFolder folder_;
  FlakyStorage storage_;
  LogStore logs_{folder_.path(), 1000};
  Metrics metrics_{Epoch(1)};
  std::promise<absl::Status> fatal_;
  std::unique_ptr<CoreLoop> loop_;
};

TEST(IsLateReader, FewUnreadMessagesAreChance) {
  for (size_t samples = 0; samples <= 3; ++samples)
    EXPECT_FALSE(is_late_reader(samples, samples)) << samples;
  EXPECT_FALSE(is_late_reader(3, 4));
  EXPECT_TRUE(is_late_reader(4, 4));
  EXPECT_FALSE(is_late_reader(3, 8));
  EXPECT_TRUE(is_late_reader(4, 8));
  EXPECT_FALSE(is_late_reader(4, 16)) << "a quarter of the samples";
  EXPECT_TRUE(is_late_reader(5, 16));
}

TEST_F(CoreLoopTest, AnswersOnlyStoredDecisions) {
  EXPECT_TRUE(submit().ok());
  EXPECT_EQ(storage_.commits, 1);
  storage_.fail = true;
  EXPECT_EQ(submit().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fatal_.get_future().get().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(submit().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CoreLoopTest, AFullDiskIsWaitedFor) {
  storage_.full = 2;
  EXPECT_TRUE(submit().ok());
  EXPECT_EQ(storage_.commits, 1);
  const std::string page = metrics_.shell().render(loop_->load(monotonic_now()));
  EXPECT_THAT(page, testing::HasSubstr("transaction_failures_total{reason=\"no_space\"} 2\n"));
  EXPECT_THAT(page, testing::HasSubstr("muster_coordinator_transaction_seconds_count 1\n"));
}

TEST_F(CoreLoopTest, StopsWhileTheDiskIsFull) {
  storage_.full = 1'000'000;
  std::thread stopper([this] {
    while (storage_.full == 1'000'000) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    loop_->stop();
  });
  EXPECT_EQ(submit().code(), absl::StatusCode::kUnavailable);
  stopper.join();
  EXPECT_EQ(storage_.commits, 0);
}

// The fault that was reported: with a full disk the liveness probe failed, the readiness probe did
// not, and every call waited for its deadline.
TEST_F(CoreLoopTest, WithAFullDiskItIsAliveButTakesNoCalls) {
  storage_.full = 1'000'000;
  std::thread submitter([this] { EXPECT_TRUE(submit().ok()); });
  const auto query = [this] { return loop_->query([](const Core*, Instant) {}); };
  while (query().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(query().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(query().message()), testing::HasSubstr("disk"));
  EXPECT_TRUE(loop_->check_alive(monotonic_now() + std::chrono::hours(1)).ok());
  EXPECT_FALSE(loop_->load(monotonic_now()).decides);
  storage_.full = 0;
  submitter.join();
  EXPECT_TRUE(submit().ok());
}

TEST_F(CoreLoopTest, OnlyALoopThatIsStuckIsNotAlive) {
  EXPECT_TRUE(loop_->check_alive(monotonic_now() + std::chrono::hours(1)).ok())
      << "it waits for events";
  // The loop may use both promises after the end of this function.
  const auto entered = std::make_shared<std::promise<void>>();
  const auto released = std::make_shared<std::promise<void>>();
  ASSERT_TRUE(loop_
                  ->query([entered, released](const Core*, Instant) {
                    entered->set_value();
                    released->get_future().wait();
                  })
                  .ok());
  entered->get_future().wait();
  EXPECT_TRUE(loop_->check_alive(monotonic_now()).ok());
  EXPECT_FALSE(loop_->check_alive(monotonic_now() + kStuckAfter).ok());
  EXPECT_FALSE(loop_->load(monotonic_now() + kStuckAfter).decides);
  released->set_value();
}

TEST(CoreLoop, StoresItsEndInReservedSpace) {
  TempFolder folder;
  FlakyStorage storage;
  storage.full_while = folder.file("reserve");
  SpaceReserve reserve(folder.path());
  reserve.take();
  ASSERT_GE(std::filesystem::file_size(storage.full_while), static_cast<uintmax_t>(kReservedBytes));
  LogStore logs{folder.path(), 1000};
  Metrics metrics{Epoch(1)};
  std::atomic<bool> failed{false};
  CoreLoop loop(
      Core(CoreOptions{}, {}, monotonic_now()), storage, logs, metrics,
      [&](const absl::Status&) { failed = true; }, &reserve);
  std::promise<absl::Status> answer;
  JobSubmitted event;
  event.spec.name = "j";
  event.spec.output_directory = "/out/1";
  ASSERT_TRUE(loop.submit(event, [&](const absl::Status& status, const Core&, const Job*,
                                     Instant) { answer.set_value(status); })
                  .ok());
  while (loop.query([](const Core*, Instant) {}).ok())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  loop.stop();
  EXPECT_TRUE(answer.get_future().get().ok()) << "the decision is stored";
  EXPECT_EQ(storage.commits, 1);
  EXPECT_FALSE(failed);
  EXPECT_FALSE(std::filesystem::exists(storage.full_while));
}

// A consumer may have missed the incidents of the earlier run.
TEST(CoreLoop, ShowsTheIncidentsOfTheEarlierRun) {
  TempFolder folder;
  FlakyStorage storage;
  storage.stored.push_back(incident_summary_to_proto(full_incident(4, JobId(1))));
  storage.stored.emplace_back().set_kind("of a later version");
  LogStore logs{folder.path(), 1000};
  Metrics metrics{Epoch(2)};
  DurableState state;
  state.jobs.emplace_back().id = JobId(1);
  std::promise<std::string> page;
  CoreLoop loop(Core(CoreOptions{}, std::move(state), monotonic_now()), storage, logs, metrics,
                [](const absl::Status&) {});
  ASSERT_TRUE(loop.query([&](const Core* core, Instant now) {
                    page.set_value(core == nullptr ? "" : metrics.render(*core, now, 1));
                  })
                  .ok());
  EXPECT_THAT(page.get_future().get(),
              testing::HasSubstr("muster_job_incident_timestamp_seconds{incident=\"4\""));
}

// The iteration's oldest event ages until the iteration is over, and later events wait behind it.
TEST_F(CoreLoopTest, TheLoadIsThatOfEventsThatWaitOrAreHandled) {
  const auto entered = std::make_shared<std::promise<void>>();
  const auto released = std::make_shared<std::promise<void>>();
  ASSERT_TRUE(loop_
                  ->query([entered, released](const Core*, Instant) {
                    entered->set_value();
                    released->get_future().wait();
                  })
                  .ok());
  entered->get_future().wait();
  const Instant later = monotonic_now() + std::chrono::seconds(9);
  EXPECT_GE(loop_->load(later).oldest_event_age, std::chrono::seconds(9));
  const size_t before = loop_->load(later).queued;
  ASSERT_TRUE(loop_->query([](const Core*, Instant) {}).ok());
  EXPECT_EQ(loop_->load(later).queued, before + 1);
  released->set_value();
  while (loop_->load(later).oldest_event_age > Duration{})
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(loop_->load(later).queued, 0U);
}

TEST_F(CoreLoopTest, AnswersEverythingWhenItStops) {
  loop_->stop();
  EXPECT_EQ(submit().code(), absl::StatusCode::kUnavailable);
}

// A stream of a worker that sends nothing that is read.
class SilentLink final : public WorkerLink {
 public:
  void send(const WorkerPayload&) override {}
  void close(const absl::Status& status) override { closed.set_value(status.code()); }
  bool has_unread() override {
    ++samples;
    return unread;
  }

  std::atomic<bool> unread{true};
  std::atomic<int> samples{0};
  std::promise<absl::StatusCode> closed;
};

// The worker's messages have arrived and were not read: its lease continues. Without such messages
// it ends.
TEST_F(CoreLoopTest, UnreadMessagesCountForLeases) {
  loop_->stop();
  CoreOptions options;
  options.version = "test";
  options.worker_lease = std::chrono::milliseconds(1000);
  options.heartbeat_interval = std::chrono::milliseconds(200);
  loop_ = std::make_unique<CoreLoop>(Core(options, {}, monotonic_now()), storage_, logs_, metrics_,
                                     [](const absl::Status&) {});
  const auto link = std::make_shared<SilentLink>();
  WorkerRegistered event;
  event.worker = WorkerName("node1");
  event.incarnation = Incarnation(1);
  event.version = "test";
  event.host.assign(1, 'h');
  event.rendezvous_address = "h:1";
  event.slots = 1;
  ASSERT_TRUE(loop_->post(event, link).ok());
  auto closed = link->closed.get_future();
  // Unread messages extend the lease at most ten times, and each time the link is sampled.
  while (link->samples < 8) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(closed.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  link->unread = false;
  EXPECT_EQ(closed.get(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace muster::coordinator

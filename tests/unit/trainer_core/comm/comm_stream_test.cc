#include "trainer_core/comm/comm_stream.h"

#include <gmock/gmock.h>

#include <atomic>
#include <latch>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trainer_core/comm/local.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;

TEST(CommStream, RunsInOrderAndAWaitMeansAllBefore) {
  const auto stream = CommStream::start();
  std::vector<int> ran;
  CommTicket fifth;
  for (int i = 0; i < 10; ++i) {
    const CommTicket ticket = stream->enqueue([&ran, i] {
      ran.push_back(i);
      return absl::OkStatus();
    });
    if (i == 4) fifth = ticket;
  }
  ASSERT_TRUE(stream->wait(fifth).ok());
  ASSERT_TRUE(stream->wait_all().ok());
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_TRUE(stream->wait(CommTicket()).ok());
}

TEST(CommStream, TheFirstFailureIsKeptAndNothingRunsAfterIt) {
  const auto stream = CommStream::start();
  bool ran = false;
  const CommTicket good = stream->enqueue([] { return absl::OkStatus(); });
  const CommTicket bad = stream->enqueue([] { return absl::UnavailableError("rank 3 is gone"); });
  const CommTicket later = stream->enqueue([&] {
    ran = true;
    return absl::InternalError("not this one");
  });
  EXPECT_EQ(stream->wait(later).message(), "rank 3 is gone");
  EXPECT_EQ(stream->wait(bad).message(), "rank 3 is gone");
  EXPECT_TRUE(stream->wait(good).ok());
  EXPECT_EQ(stream->wait_all().message(), "rank 3 is gone");
  EXPECT_EQ(stream->status().message(), "rank 3 is gone");
  EXPECT_FALSE(ran);
}

TEST(CommStream, BlocksWhenTheQueueIsFull) {
  const auto stream = CommStream::start(nullptr, 2);
  std::binary_semaphore begun(0), go_on(0);
  stream->enqueue([&] {
    begun.release();
    go_on.acquire();
    return absl::OkStatus();
  });
  begun.acquire();
  std::atomic<int> enqueued = 0;
  std::thread caller([&] {
    for (int i = 0; i < 3; ++i, ++enqueued) stream->enqueue([] { return absl::OkStatus(); });
  });
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_LE(enqueued, 2);
  go_on.release();
  caller.join();
  EXPECT_TRUE(stream->wait_all().ok());
  EXPECT_TRUE(stream->status().ok());
}

// A stream whose clock advances only when a test advances it.
class TimedStream : public testing::Test {
 private:
  const std::thread::id tests_ = std::this_thread::get_id();
  std::atomic<int64_t> now_ns_{0};
  std::counting_semaphore<> waits_{0};

 protected:
  void pass(milliseconds time) { now_ns_ += Duration(time).count(); }
  // Blocks until the test's thread waits for unfinished work, which reads the clock. Can be used
  // once per wait.
  void until_waited_for() { waits_.acquire(); }

  const std::unique_ptr<CommStream> stream_ = CommStream::start(nullptr, 10, [this] {
    if (std::this_thread::get_id() == tests_) waits_.release();
    return instant_from_ns(now_ns_);
  });
};

TEST_F(TimedStream, BlockedIsTheWaitersTimeNotTheWorks) {
  EXPECT_EQ(stream_->times().hidden(), 1);
  const CommTicket hidden = stream_->enqueue([&] {
    pass(milliseconds(30));
    return absl::OkStatus();
  });
  // The computation, as long as the work.
  while (stream_->times().busy == Duration::zero()) std::this_thread::yield();
  ASSERT_TRUE(stream_->wait(hidden).ok());
  const CommTimes first = stream_->times();
  EXPECT_EQ(first.busy, milliseconds(30));
  EXPECT_EQ(first.blocked, Duration::zero());
  EXPECT_EQ(first.hidden(), 1);
  const CommTicket waited_for = stream_->enqueue([&] {
    pass(milliseconds(10));
    until_waited_for();
    pass(milliseconds(30));
    return absl::OkStatus();
  });
  ASSERT_TRUE(stream_->wait(waited_for).ok());
  const CommTimes second = stream_->times() - first;
  EXPECT_EQ(second.busy, milliseconds(40));
  EXPECT_GE(second.blocked, milliseconds(30));  // 40 where the wait began first
  EXPECT_LT(second.hidden(), 0.3);
}

// Waiting for the computation that a collective needs is not waiting for peers.
TEST_F(TimedStream, TimeUntilReadyCountsAsNeither) {
  std::vector<int> order;
  const CommTicket ticket = stream_->enqueue(
      [&] {
        order.push_back(2);
        return absl::OkStatus();
      },
      [&] {
        pass(milliseconds(60));
        until_waited_for();
        pass(milliseconds(60));
        order.push_back(1);
      });
  ASSERT_TRUE(stream_->wait(ticket).ok());
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(stream_->times().busy, Duration::zero());
  EXPECT_EQ(stream_->times().blocked, Duration::zero());
}

TEST(CommStream, DestructionDropsPendingWorkAndWaitsForTheRest) {
  std::binary_semaphore begun(0), go_on(0);
  bool first_ended = false;
  std::atomic<int> ran{0};
  auto stream = CommStream::start();
  stream->enqueue([&] {
    begun.release();
    go_on.acquire();
    first_ended = true;
    return absl::OkStatus();
  });
  begun.acquire();
  auto token = std::make_shared<int>();
  stream->enqueue([&ran, token] {
    ++ran;
    return absl::OkStatus();
  });
  std::thread end([&] { stream.reset(); });
  while (token.use_count() > 1) std::this_thread::yield();  // the queue is dropped
  go_on.release();
  end.join();
  EXPECT_TRUE(first_ended);
  EXPECT_EQ(ran, 0);
}

// A stream is destroyed after a local error while a peer hangs: neither rank waits for the other's
// timeout.
TEST(CommStream, AnEndInTheMiddleOfACollectiveAbortsIt) {
  const LocalWorld world(2, std::chrono::minutes(10));
  const auto group = world.join(0, nullptr, "data");
  const auto peer = world.join(1, nullptr, "data");
  std::latch begun(1);
  std::vector<float> data(10);
  auto stream = CommStream::start([&] { group->abort(); });
  stream->enqueue([&] {
    begun.count_down();
    return group->recv(data, 1, "gradients");
  });
  begun.wait();
  stream.reset();
  const absl::Status status = peer->recv(data, 0, "gradients");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank 0 aborted"));
}

TEST(CommStream, DestructionWithoutPendingWorkDoesNotAbort) {
  bool aborted = false;
  auto stream = CommStream::start([&] { aborted = true; });
  ASSERT_TRUE(stream->wait(stream->enqueue([] { return absl::OkStatus(); })).ok());
  stream.reset();
  EXPECT_FALSE(aborted);
}

}  // namespace
}  // namespace muster::trainer

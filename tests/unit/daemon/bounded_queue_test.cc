#include "daemon/bounded_queue.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace muster::daemon {
namespace {

TEST(BoundedQueue, RefusesWhenFullAndLeavesTheItem) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.try_push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(queue.try_push(std::move(second)));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(queue.pop_all(std::nullopt).size(), 1U);
  EXPECT_TRUE(queue.try_push(std::move(second)));
}

TEST(BoundedQueue, PopsInOrderAndGivesUpAtTheDeadline) {
  BoundedQueue<int> queue(8);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.try_push(int{i}));
  EXPECT_EQ(queue.pop_all(monotonic_now()), (std::deque<int>{0, 1, 2}));
  const Instant before = monotonic_now();
  EXPECT_TRUE(queue.pop_all(before + std::chrono::milliseconds(20)).empty());
  EXPECT_GE(monotonic_now() - before, std::chrono::milliseconds(20));
  EXPECT_TRUE(queue.pop_all(before).empty()) << "a deadline in the past does not wait";
}

TEST(BoundedQueue, ClosingWakesAllWaitersAndKeepsItems) {
  BoundedQueue<int> queue(1);
  EXPECT_TRUE(queue.try_push(1));
  BoundedQueue<int> empty(1);
  std::thread consumer([&] { EXPECT_TRUE(empty.pop_all(std::nullopt).empty()); });
  queue.close();
  empty.close();
  consumer.join();
  EXPECT_FALSE(queue.try_push(3));
  EXPECT_EQ(queue.pop_all(std::nullopt), (std::deque<int>{1}));
  EXPECT_TRUE(queue.pop_all(std::nullopt).empty());
}

// A waiter for the end that took the notification of an item would leave the consumer asleep.
TEST(BoundedQueue, AnItemWakesAConsumerAndNoWaiterForTheEnd) {
  constexpr Duration kPatience = std::chrono::seconds(20);
  BoundedQueue<int> queue(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { EXPECT_TRUE(queue.wait_until_closed(10 * kPatience)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::atomic<bool> has_item{false};
  threads.emplace_back([&] { has_item = queue.pop_all(std::nullopt).size() == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(queue.try_push(1));
  const Instant deadline = monotonic_now() + kPatience;
  while (!has_item && monotonic_now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(has_item);
  queue.close();
  for (std::thread& thread : threads) thread.join();
}

TEST(BoundedQueue, SeveralConsumersTakeAllItems) {
  constexpr int kConsumers = 4, kItems = 20'000;
  BoundedQueue<int> queue(16);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> consumers;
  for (int c = 0; c < kConsumers; ++c) {
    consumers.emplace_back([&] {
      for (;;) {
        const std::deque<int> items = queue.pop_all(std::nullopt);
        if (items.empty() && queue.closed()) return;
        for (const int item : items) sum += item;
      }
    });
  }
  for (int i = 1; i <= kItems; ++i)
    while (!queue.try_push(int{i})) std::this_thread::yield();
  queue.close();
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(sum, int64_t{kItems} * (kItems + 1) / 2);
}

TEST(BoundedQueue, NothingIsLostBetweenThreads) {
  constexpr int kProducers = 4, kItems = 5'000;
  BoundedQueue<int> queue(16);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&] {
      for (int i = 1; i <= kItems; ++i) {
        while (!queue.try_push(int{i})) std::this_thread::yield();
      }
    });
  }
  int64_t sum = 0, count = 0;
  while (count < int64_t{kProducers} * kItems) {
    const std::deque<int> items = queue.pop_all(std::nullopt);
    ASSERT_LE(items.size(), 16U);
    for (const int item : items) sum += item, ++count;
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(sum, int64_t{kProducers} * kItems * (kItems + 1) / 2);
}

}  // namespace
}  // namespace muster::daemon

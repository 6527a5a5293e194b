// Every collective against a naive reference, for any backend: ranks are threads that each hold one group.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/progress_page.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

using GroupMaker = std::function<std::unique_ptr<ProcessGroup>(int rank, int size)>;

// Runs `body` on every rank's own thread and waits for all.
inline void on_ranks(int size, const GroupMaker& make,
                     const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = make(rank, size);
      ASSERT_NE(group, nullptr);
      body(*group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Waits until the rank that writes the page has begun its `count`th collective.
inline void wait_for_collective(const std::string& page_path, uint64_t count) {
  const Instant deadline = monotonic_now() + std::chrono::seconds(20);
  while (monotonic_now() < deadline) {
    const auto page = read_progress_page(page_path);
    ASSERT_TRUE(page.ok()) << page.status();
    if (page->groups[0].started >= count) return;
    std::this_thread::yield();
  }
  FAIL() << "no collective has begun";
}

// What rank `rank` brings as element `i`: sums of these round differently in different orders.
inline float element(int rank, size_t i) {
  return 1.0F / static_cast<float>(1 + rank * 7 + static_cast<int>(i % 101)) +
         static_cast<float>(rank);
}

inline std::vector<float> input_of(int rank, size_t count) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = element(rank, i);
  return data;
}

inline std::vector<float> sum_of(int size, size_t count) {
  std::vector<float> sum = input_of(0, count);
  for (int rank = 1; rank < size; ++rank) {
    for (size_t i = 0; i < count; ++i) sum[i] += element(rank, i);
  }
  return sum;
}

inline void check_reductions(ProcessGroup& group, size_t count) {
  const int size = group.size();
  std::vector<float> data = input_of(group.rank(), count);
  ASSERT_TRUE(group.all_reduce(data, "gradients").ok());
  EXPECT_EQ(data, sum_of(size, count));  // bit for bit: rank order

  const std::vector<float> whole = input_of(group.rank(), count * static_cast<size_t>(size));
  std::vector<float> slice(count);
  ASSERT_TRUE(group.reduce_scatter(whole, slice, "slice").ok());
  const std::vector<float> sum = sum_of(size, whole.size());
  const auto begin =
      sum.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(group.rank()) * count);
  EXPECT_EQ(slice, std::vector<float>(begin, begin + static_cast<ptrdiff_t>(count)));
}

inline void check_moves(ProcessGroup& group, size_t count) {
  const auto size = static_cast<size_t>(group.size());
  const int me = group.rank();
  std::vector<float> gathered(count * size);
  ASSERT_TRUE(group.all_gather(input_of(me, count), gathered, "gather").ok());
  std::vector<float> exchanged(count * size);
  ASSERT_TRUE(group.all_to_all(input_of(me, count * size), exchanged, "exchange").ok());
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(gathered[r * count + i], element(static_cast<int>(r), i));
      EXPECT_EQ(exchanged[r * count + i],
                element(static_cast<int>(r), static_cast<size_t>(me) * count + i));
    }
  }
  for (int root = 0; root < group.size(); ++root) {
    std::vector<float> data = input_of(me, count);
    ASSERT_TRUE(group.broadcast(data, root, "broadcast").ok());
    EXPECT_EQ(data, input_of(root, count));
  }
  ASSERT_TRUE(group.barrier("barrier").ok());
}

// A parcel goes once around the ring.
inline void check_point_to_point(ProcessGroup& group, size_t count) {
  if (group.size() == 1) return;
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  std::vector<float> data(count);
  if (group.rank() == 0) {
    ASSERT_TRUE(group.send(input_of(0, count), next, "parcel").ok());
    ASSERT_TRUE(group.recv(data, previous, "parcel").ok());
  } else {
    ASSERT_TRUE(group.recv(data, previous, "parcel").ok());
    ASSERT_TRUE(group.send(data, next, "parcel").ok());
  }
  EXPECT_EQ(data, input_of(0, count));
}

inline void check_everything(ProcessGroup& group) {
  for (const size_t count : {size_t{1}, size_t{3}, size_t{1000}, size_t{70'001}}) {
    check_reductions(group, count);
    check_moves(group, count);
    check_point_to_point(group, count);
  }
}

}  // namespace muster::trainer

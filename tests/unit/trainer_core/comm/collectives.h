// Checks every collective of a process group against a naive reference. Each rank is a thread with
// one group.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/progress/progress_page.h"
#include "tests/unit/temp_folder.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// Makes the group of a rank.
using GroupMaker = std::function<std::unique_ptr<ProcessGroup>(int rank, int size)>;

// Runs `body` on a thread per rank, and blocks until all have returned.
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

// Prints the status if it is an error.
inline testing::AssertionResult succeeds(const absl::Status& status) {
  if (status.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status;
}

// Blocks until the rank that writes the page has begun its `count`th collective.
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

// Tests abort() on another thread: rank 0 waits for a message that is never sent, until another of
// its threads aborts; rank 1 waits for rank 0. Returns the error of rank 1.
inline std::string abort_from_another_thread(
    const std::function<std::unique_ptr<ProcessGroup>(int rank, ProgressWriter* page)>& make) {
  const TempFolder folder;
  const auto page = ProgressWriter::create(folder.file("page"), {});
  EXPECT_TRUE(page.ok()) << page.status();
  std::string error;
  on_ranks(
      2, [&](int rank, int) { return make(rank, rank == 0 ? page->get() : nullptr); },
      [&](ProcessGroup& group) {
        std::vector<float> data(10);
        if (group.rank() == 1) {
          const absl::Status status = group.recv(data, 0, "never");
          EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
          error = std::string(status.message());
          return;
        }
        std::thread aborter([&] {
          wait_for_collective(folder.file("page"), 1);
          group.abort();
        });
        EXPECT_EQ(group.recv(data, 1, "never").code(), absl::StatusCode::kUnavailable);
        aborter.join();
      });
  return error;
}

// Returns element `i` of the input of `rank`. Sums of these elements round differently in different
// orders.
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
  ASSERT_TRUE(succeeds(group.all_reduce(data, "gradients")));
  EXPECT_EQ(data, sum_of(size, count));  // bit for bit: rank order

  const std::vector<float> whole = input_of(group.rank(), count * static_cast<size_t>(size));
  std::vector<float> slice(count);
  ASSERT_TRUE(succeeds(group.reduce_scatter(whole, slice, "slice")));
  const std::vector<float> sum = sum_of(size, whole.size());
  const auto begin =
      sum.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(group.rank()) * count);
  EXPECT_EQ(slice, std::vector<float>(begin, begin + static_cast<ptrdiff_t>(count)));
}

inline void check_moves(ProcessGroup& group, size_t count) {
  const auto size = static_cast<size_t>(group.size());
  const int me = group.rank();
  std::vector<float> gathered(count * size);
  ASSERT_TRUE(succeeds(group.all_gather(input_of(me, count), gathered, "gather")));
  std::vector<float> exchanged(count * size);
  ASSERT_TRUE(succeeds(group.all_to_all(input_of(me, count * size), exchanged, "exchange")));
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(gathered[r * count + i], element(static_cast<int>(r), i));
      EXPECT_EQ(exchanged[r * count + i],
                element(static_cast<int>(r), static_cast<size_t>(me) * count + i));
    }
  }
  for (int root = 0; root < group.size(); ++root) {
    std::vector<float> data = input_of(me, count);
    ASSERT_TRUE(succeeds(group.broadcast(data, root, "broadcast")));
    EXPECT_EQ(data, input_of(root, count));
  }
  ASSERT_TRUE(succeeds(group.barrier("barrier")));
}

// Sends a message once around a ring.
inline void check_point_to_point(ProcessGroup& group, size_t count) {
  if (group.size() == 1) return;
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  std::vector<float> data(count);
  if (group.rank() == 0) {
    ASSERT_TRUE(succeeds(group.send(input_of(0, count), next, "parcel")));
    ASSERT_TRUE(succeeds(group.recv(data, previous, "parcel")));
  } else {
    ASSERT_TRUE(succeeds(group.recv(data, previous, "parcel")));
    ASSERT_TRUE(succeeds(group.send(data, next, "parcel")));
  }
  EXPECT_EQ(data, input_of(0, count));
}

// Checks that bf16 is summed in fp32 and rounded once, int32 is gathered unchanged, and the maximum
// with a NaN is NaN.
inline void check_types(ProcessGroup& group, size_t count) {
  const auto size = static_cast<size_t>(group.size());
  const auto rounded = [](const std::vector<float>& data) {
    std::vector<Bf16> out(data.size());
    std::ranges::transform(data, out.begin(), Bf16::round);
    return out;
  };
  const auto bits = [](const std::vector<Bf16>& data) {
    std::vector<uint16_t> out(data.size());
    std::ranges::transform(data, out.begin(), [](Bf16 x) { return x.bits; });
    return out;
  };
  std::vector<float> sum(count * size);
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::vector<Bf16> theirs = rounded(input_of(rank, sum.size()));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i].value();
  }
  const std::vector<Bf16> mine = rounded(input_of(group.rank(), sum.size()));
  std::vector<Bf16> reduced = mine;
  ASSERT_TRUE(succeeds(group.all_reduce(reduced, "bf16")));
  EXPECT_EQ(bits(reduced), bits(rounded(sum)));
  std::vector<float> exact(count);  // not rounded at all
  ASSERT_TRUE(succeeds(group.reduce_scatter(mine, exact, "bf16 to fp32")));
  const float* const slice = sum.data() + static_cast<size_t>(group.rank()) * count;
  EXPECT_EQ(exact, std::vector<float>(slice, slice + count));

  std::vector<int32_t> numbers(count * size);
  ASSERT_TRUE(
      succeeds(group.all_gather(std::vector<int32_t>(count, 7 - group.rank()), numbers, "int32")));
  for (size_t i = 0; i < numbers.size(); ++i)
    ASSERT_EQ(numbers[i], 7 - static_cast<int>(i / count));

  std::vector<float> largest(count);
  for (size_t i = 0; i < count; ++i)
    largest[i] = i % size == static_cast<size_t>(group.rank()) ? 5 : -1;
  if (group.rank() == group.size() - 1) largest.back() = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(succeeds(group.all_reduce_max(largest, "largest")));
  for (size_t i = 0; i + 1 < count; ++i) ASSERT_EQ(largest[i], 5);
  EXPECT_TRUE(std::isnan(largest.back()));
}

// Checks all_to_all_v(). Rank r sends ((r + 2 j) % 5) * unit elements to rank j, so counts differ
// between the receivers of a rank, and some are 0.
inline void check_unequal(ProcessGroup& group, size_t unit) {
  const int me = group.rank();
  const auto count = [&](int from, int to) {
    return static_cast<size_t>((from + 2 * to) % 5) * unit;
  };
  std::vector<size_t> sends, receives;
  std::vector<float> input, expected;
  for (int rank = 0; rank < group.size(); ++rank) {
    sends.push_back(count(me, rank));
    receives.push_back(count(rank, me));
    for (size_t i = 0; i < sends.back(); ++i) input.push_back(element(me * 10 + rank, i));
    for (size_t i = 0; i < receives.back(); ++i) expected.push_back(element(rank * 10 + me, i));
  }
  std::vector<float> output(expected.size());
  ASSERT_TRUE(succeeds(group.all_to_all_v(input, sends, output, receives, "unequal")));
  EXPECT_EQ(output, expected);
}

// Checks that all ranks can send data twice around a ring at the same time without a deadlock.
inline void check_ring(ProcessGroup& group, size_t count) {
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  std::vector<float> held = input_of(group.rank(), count), coming(count);
  for (int step = 0; step < 2 * group.size(); ++step) {
    ASSERT_TRUE(succeeds(group.send_recv(held, next, coming, previous, "ring")));
    std::swap(held, coming);
  }
  EXPECT_EQ(held, input_of(group.rank(), count));
}

// Checks collectives in place, as sharded parameters use them.
inline void check_in_place(ProcessGroup& group, size_t count) {
  const auto size = static_cast<size_t>(group.size());
  const size_t own = static_cast<size_t>(group.rank()) * count;
  std::vector<float> whole = input_of(group.rank(), count * size);
  const std::span<float> mine = std::span(whole).subspan(own, count);
  ASSERT_TRUE(succeeds(group.reduce_scatter(whole, mine, "scatter")));
  ASSERT_TRUE(succeeds(group.all_gather(mine, whole, "gather")));
  EXPECT_EQ(whole, sum_of(group.size(), count * size));
}

inline void check_everything(ProcessGroup& group) {
  for (const size_t count : {size_t{1}, size_t{3}, size_t{1000}, size_t{70'001}}) {
    check_reductions(group, count);
    check_moves(group, count);
    check_point_to_point(group, count);
    check_types(group, count);
    check_unequal(group, count);
    check_ring(group, count);
    check_in_place(group, count);
  }
}

// Checks data that exceed one round of every transport.
inline void check_large(ProcessGroup& group) {
  constexpr size_t kCount = 3'000'017;
  std::vector<float> data = input_of(group.rank(), kCount);
  ASSERT_TRUE(succeeds(group.all_reduce(data, "large")));
  EXPECT_EQ(data, sum_of(group.size(), kCount));
  check_in_place(group, kCount);
  check_unequal(group, kCount / 4);
  check_ring(group, kCount);
  ASSERT_TRUE(succeeds(group.broadcast(data, group.size() - 1, "large")));
}

// Checks each collective's sent bytes against the formulas of comm.h. `n` divides only the sizes
// that must be divisible.
inline void check_sent_bytes(ProcessGroup& group) {
  const auto n = static_cast<size_t>(group.size());
  const auto rank = static_cast<size_t>(group.rank());
  const size_t count = 1001;
  const auto slice = [&](size_t member) { return count / n + (member < count % n ? 1 : 0); };
  std::vector<float> data(count), whole(count * n);
  uint64_t before = 0;
  const auto sent = [&](CollectiveKind kind) {
    const uint64_t total = group.sent(kind).total;
    const uint64_t now = total - before;
    before = 0;
    return now;
  };
  ASSERT_TRUE(succeeds(group.all_reduce(data, "a")));
  const size_t others = count - slice(rank);
  EXPECT_EQ(sent(CollectiveKind::kAllReduce), 4 * (others + (n - 1) * slice(rank)));
  ASSERT_TRUE(succeeds(group.all_gather(data, whole, "b")));
  EXPECT_EQ(sent(CollectiveKind::kAllGather), 4 * (n - 1) * count);
  ASSERT_TRUE(succeeds(group.reduce_scatter(whole, data, "c")));
  EXPECT_EQ(sent(CollectiveKind::kReduceScatter), 4 * (n - 1) * count);  // input: n * count
  std::vector<float> exchanged(whole.size());
  ASSERT_TRUE(succeeds(group.all_to_all(whole, exchanged, "d")));
  EXPECT_EQ(sent(CollectiveKind::kAllToAll), 4 * (n - 1) * count);
  ASSERT_TRUE(succeeds(group.broadcast(data, 0, "e")));
  EXPECT_EQ(sent(CollectiveKind::kBroadcast),
            4 * (rank == 0 ? others + (n - 1) * slice(0) : (n - 2) * slice(rank)));
  ASSERT_TRUE(succeeds(group.barrier("f")));
  EXPECT_EQ(sent(CollectiveKind::kBarrier), 4 * (n - 1));
  std::vector<Bf16> half(count);
  before = group.sent(CollectiveKind::kAllReduce).total;
  ASSERT_TRUE(succeeds(group.all_reduce(half, "g")));
  EXPECT_EQ(sent(CollectiveKind::kAllReduce), 2 * (others + (n - 1) * slice(rank)));
}

}  // namespace muster::trainer

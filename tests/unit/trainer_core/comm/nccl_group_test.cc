// Groups over a NCCL that tests have (fake_nccl.h): what they bring together, and how faults end.
#include "trainer_core/comm/nccl_group.h"

#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/comm/device_collectives.h"
#include "tests/unit/trainer_core/comm/fake_nccl.h"
#include "tests/unit/trainer_core/locked_memory.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/comm/staged_group.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NcclGroups : public testing::Test {
 protected:
  using OptionsOf = std::function<NcclOptions(int rank)>;

  void on_groups(const std::function<void(ProcessGroup&)>& body,
                 const OptionsOf& options = nullptr) {
    LocalWorld world(kDeviceRanks, std::chrono::milliseconds(20'000));
    on_ranks(
        kDeviceRanks,
        [&](int rank, int) {
          auto staged = staged_group(make_world_group(world.join(rank), "world", nullptr), memory_);
          const NcclOptions mine = options ? options(rank) : NcclOptions{.api = nccl_.api()};
          return nccl_group(std::move(staged), mine, memory_, nullptr, 0);
        },
        body);
  }
  // What an all-reduce says on each rank.
  std::vector<absl::Status> statuses(const OptionsOf& options = nullptr) {
    std::vector<absl::Status> all(kDeviceRanks);
    on_groups(
        [&](ProcessGroup& group) {
          Vector data(memory_, input_of(group.rank(), 10));
          all[static_cast<size_t>(group.rank())] = group.all_reduce(data.all(), "gradients");
        },
        options);
    return all;
  }

  OptionsOf connecting_for_50_ms() {
    return [this](int) {
      return NcclOptions{.api = nccl_.api(), .connect_timeout = std::chrono::milliseconds(50)};
    };
  }

  LockedMemory memory_;
  FakeNccl nccl_{memory_, [](void* stream, std::function<void()> work) {
                   static_cast<ThreadQueue*>(stream)->call(std::move(work));
                 }};
};

TEST_F(NcclGroups, ComeToWhatOtherGroupsComeTo) {
  std::vector<std::vector<float>> expected, ours;
  {
    LocalWorld world(kDeviceRanks, std::chrono::milliseconds(20'000));
    on_ranks(
        kDeviceRanks,
        [&](int rank, int) { return make_world_group(world.join(rank), "world", nullptr); },
        [&](ProcessGroup& group) { run_collectives(group, host_memory(), expected); });
  }
  on_groups([&](ProcessGroup& group) { run_collectives(group, memory_, ours); });
  EXPECT_EQ(ours, expected);
  EXPECT_GT(nccl_.calls, 0);
  EXPECT_EQ(nccl_.communicators, 0);
  EXPECT_EQ(nccl_.aborted, 0);
}

// The host's numbers need no communicator.
TEST_F(NcclGroups, LeaveTheHostsNumbersToOthers) {
  on_groups([&](ProcessGroup& group) {
    std::vector<float> sum = input_of(group.rank(), 10);
    EXPECT_TRUE(succeeds(group.all_reduce(sum, "sum")));
    EXPECT_EQ(sum, sum_of(kDeviceRanks, 10));
    EXPECT_TRUE(succeeds(group.barrier("end")));
  });
  EXPECT_EQ(nccl_.calls, 0);
}

TEST_F(NcclGroups, NameARankOfAnotherVersion) {
  const auto all = statuses(
      [&](int rank) { return NcclOptions{.api = nccl_.api(rank == 2 ? 22'703 : 22'809)}; });
  for (const absl::Status& status : all) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 2 of group world has NCCL 2.27.3, and rank 0 2.28.9"),
                      HasSubstr("every node needs the same")));
  }
}

// The others wait for it until their time is over, and NCCL does not tell them for whom.
TEST_F(NcclGroups, NameARankWithoutACommunicator) {
  nccl_.failing_init = 1;
  for (const absl::Status& status : statuses(connecting_for_50_ms())) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("of group world these ranks have no NCCL communicator: 1 (NCCL: "
                          "unhandled system error); 0, 2 (nothing for 0.05 s); look at the "
                          "network"));
  }
  EXPECT_EQ(nccl_.communicators, 0);
}

TEST_F(NcclGroups, WaitForACommunicatorABoundedTime) {
  nccl_.pending_init = 0;
  for (const absl::Status& status : statuses(connecting_for_50_ms())) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no NCCL communicator: 0, 1, 2 (nothing for 0.05 s, and NCCL has found "
                          "no error on any rank); look at the network"));
  }
  EXPECT_EQ(nccl_.communicators, 0);
}

TEST_F(NcclGroups, AnErrorThatNcclFindsLaterEndsTheCollective) {
  on_groups([&](ProcessGroup& group) {
    Vector data(memory_, input_of(group.rank(), 10));
    EXPECT_TRUE(succeeds(group.all_reduce(data.all(), "first")));
    EXPECT_TRUE(succeeds(group.barrier("all have it")));
    if (group.rank() == 0) nccl_.remote_error = true;
    EXPECT_TRUE(succeeds(group.barrier("it is broken")));
    for (int i = 0; i < 2; ++i) {  // the second finds no communicator any more
      const absl::Status status = group.all_reduce(data.all(), "second");
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("all-reduce \"second\""), HasSubstr("world nccl"),
                        HasSubstr("remote process exited")));
    }
  });
  EXPECT_EQ(nccl_.aborted, kDeviceRanks);
}

// A device that does not get on: the rank waits until it is told.
TEST_F(NcclGroups, AbortEndsACollectiveThatWaits) {
  on_groups([&](ProcessGroup& group) {
    Vector data(memory_, input_of(group.rank(), 10));
    EXPECT_TRUE(succeeds(group.all_reduce(data.all(), "first")));
    EXPECT_TRUE(succeeds(group.barrier("all have it")));
    memory_.goes_on = false;
    std::thread aborter([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      group.abort();
    });
    EXPECT_EQ(group.all_reduce(data.all(), "stuck").code(), absl::StatusCode::kUnavailable);
    aborter.join();
  });
  EXPECT_EQ(nccl_.aborted, kDeviceRanks);
  EXPECT_EQ(nccl_.communicators, 0);
}

TEST_F(NcclGroups, ACollectiveTakesABoundedTime) {
  memory_.goes_on = false;
  const auto all = statuses([&](int) {
    return NcclOptions{.api = nccl_.api(), .timeout = std::chrono::milliseconds(30)};
  });
  for (const absl::Status& status : all)
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

// Groups that follow a computation of their rank's.
class NcclInOrder : public NcclGroups {
 protected:
  struct Rank {
    ProcessGroup& group;
    ThreadQueue& computation;
    std::string page;

    // The device's numbers become these when it comes to it.
    void write(Vector& vector, float value) const {
      computation.call([&vector, value] { vector.set(value); });
    }
    GroupProgress shown() const { return read_progress_page(page).value().groups[0]; }
    void wait_for_device() const { computation.mark()->wait(); }
  };
  // Keeps the computation from what is called next until open() is.
  class Gate {
   public:
    explicit Gate(ThreadQueue& queue) {
      queue.call([is_open = is_open_] { is_open->wait(false); });
    }
    ~Gate() { open(); }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    void open() {
      *is_open_ = true;
      is_open_->notify_all();
    }

   private:
    std::shared_ptr<std::atomic<bool>> is_open_ = std::make_shared<std::atomic<bool>>(false);
  };

  void on_ranks_in_order(const std::function<void(const Rank&)>& body,
                         std::chrono::milliseconds timeout = kRoundTimeout) {
    LocalWorld world(kDeviceRanks, std::chrono::milliseconds(20'000));
    const TempFolder folder;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kDeviceRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const std::string path = folder.file(std::to_string(rank));
        const auto page = ProgressWriter::create(path, {.rank = rank}).value();
        const auto group =
            nccl_group(staged_group(make_world_group(world.join(rank), "world", nullptr), memory_),
                       {.api = nccl_.api(), .timeout = timeout}, memory_, page.get(), 0);
        const auto computation = std::make_shared<ThreadQueue>(memory_.goes_on);
        group->follow(computation);
        body({*group, *computation, path});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // What is said of a second of three collectives for which rank 2 is not there, once `and_then` has happened on the other ranks: at
  // the end, and by the next call. Whatever became of it, the device goes on.
  void expect_second_fails(absl::StatusCode code, const std::string& text,
                           const std::function<void(ProcessGroup&)>& and_then,
                           std::chrono::milliseconds timeout = kRoundTimeout) {
    std::barrier all_have_called(kDeviceRanks), all_have_failed(kDeviceRanks);
    on_ranks_in_order(
        [&](const Rank& rank) {
          Vector x(memory_, 10);
          rank.write(x, 1);
          EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "first")));
          EXPECT_TRUE(succeeds(rank.group.finish()));
          const bool is_there = rank.group.rank() != 2;
          if (is_there) {
            EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "second")));
            EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "third")));
          }
          all_have_called.arrive_and_wait();
          if (is_there) {
            while (rank.shown().started < 2) std::this_thread::yield();
            and_then(rank.group);
            for (const absl::Status& status :
                 {rank.group.finish(), rank.group.all_reduce(x.all(), "fourth")}) {
              EXPECT_EQ(status.code(), code) << status;
              EXPECT_THAT(
                  std::string(status.message()),
                  AllOf(HasSubstr("all-reduce \"second\" (number 2 of group \"world nccl\")"),
                        HasSubstr(text)));
            }
            rank.wait_for_device();
            EXPECT_EQ(rank.shown().enqueued, 3U);
            EXPECT_EQ(rank.shown().started, 2U);
            EXPECT_EQ(rank.shown().completed, 1U);
          }
          all_have_failed.arrive_and_wait();
        },
        timeout);
    EXPECT_GE(nccl_.aborted, 2);
    EXPECT_EQ(nccl_.communicators, 0);
  }
};

TEST_F(NcclInOrder, ComeToWhatOtherGroupsComeTo) {
  std::vector<std::vector<float>> expected, ours;
  on_groups([&](ProcessGroup& group) { run_collectives(group, memory_, expected); });
  on_ranks_in_order([&](const Rank& rank) { run_collectives(rank.group, memory_, ours); });
  EXPECT_EQ(ours, expected);
  EXPECT_EQ(nccl_.aborted, 0);
}

TEST_F(NcclInOrder, TheHostIsAheadOfTheDevice) {
  on_ranks_in_order([&](const Rank& rank) {
    Vector x(memory_, 10), seen(memory_, 10);
    {
      Gate gate(rank.computation);
      rank.write(x, static_cast<float>(rank.group.rank() + 1));
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "sum")));
      rank.computation.call([&] { seen.set(x.values()[0]); });
      const GroupProgress shown = rank.shown();
      EXPECT_EQ(shown.enqueued, 3U);
      EXPECT_EQ(shown.started, 1U);  // the first one met its peers where it was called
      EXPECT_EQ(shown.completed, 0U);
    }
    EXPECT_TRUE(succeeds(rank.group.finish()));
    rank.wait_for_device();
    EXPECT_EQ(seen.values()[0], 6 * 3 * 3);
    EXPECT_EQ(rank.shown().started, 3U);
    EXPECT_EQ(rank.shown().completed, 3U);
    EXPECT_TRUE(succeeds(rank.group.barrier("end")));
  });
}

TEST_F(NcclInOrder, ButNotFarAhead) {
  on_ranks_in_order([&](const Rank& rank) {
    constexpr uint64_t kCalls = 2 * kOutstandingMax + 4;
    Vector x(memory_, 1);
    EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "first")));
    EXPECT_TRUE(succeeds(rank.group.finish()));
    Gate gate(rank.computation);
    rank.write(x, 1);
    std::thread caller([&] {
      for (uint64_t i = 0; i < kCalls; ++i)
        EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "sum")));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    // One is looked after, and one waits for room.
    EXPECT_LE(rank.shown().enqueued, 1 + kOutstandingMax + 2);
    gate.open();
    caller.join();
    EXPECT_TRUE(succeeds(rank.group.finish()));
    EXPECT_EQ(rank.shown().completed, 1 + kCalls);
    EXPECT_TRUE(succeeds(rank.group.barrier("end")));
  });
}

// What a rank computes is no time of its collectives, what it waits for peers is.
TEST_F(NcclInOrder, BusyIsWhatTheDeviceWaitsForPeers) {
  on_ranks_in_order([&](const Rank& rank) {
    Vector x(memory_, 10);
    EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "first")));
    EXPECT_TRUE(succeeds(rank.group.finish()));
    EXPECT_TRUE(succeeds(rank.group.barrier("together")));
    const Duration before = rank.group.busy();
    const bool is_late = rank.group.rank() == 0;
    constexpr auto kLate = std::chrono::milliseconds(200);
    if (is_late) rank.computation.call([&] { std::this_thread::sleep_for(kLate); });
    EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "second")));
    EXPECT_TRUE(succeeds(rank.group.finish()));
    const Duration busy = rank.group.busy() - before;
    if (is_late) {
      EXPECT_LT(busy, kLate / 2);
    } else {
      EXPECT_GT(busy, kLate / 2);
    }
    EXPECT_TRUE(succeeds(rank.group.barrier("end")));
  });
}

TEST_F(NcclInOrder, WhatNcclFindsOutEndsWhatIsOutstanding) {
  expect_second_fails(absl::StatusCode::kUnavailable, "remote process exited",
                      [&](ProcessGroup&) { nccl_.remote_error = true; });
}

TEST_F(NcclInOrder, AbortEndsWhatIsOutstanding) {
  expect_second_fails(absl::StatusCode::kUnavailable, "aborted", [](ProcessGroup& group) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::thread([&] { group.abort(); }).join();
  });
}

TEST_F(NcclInOrder, ACollectiveTakesABoundedTimeOnceItHasStarted) {
  expect_second_fails(
      absl::StatusCode::kDeadlineExceeded, "nothing for 0.3 s", [](ProcessGroup&) {},
      std::chrono::milliseconds(300));
}

// A rank that leaves has nobody wait for what it has called.
TEST_F(NcclInOrder, WhoLeavesAborts) {
  std::vector<Vector> all;  // outlive what is outstanding
  for (int rank = 0; rank < kDeviceRanks; ++rank) all.emplace_back(memory_, 10);
  on_ranks_in_order([&](const Rank& rank) {
    Vector& x = all[static_cast<size_t>(rank.group.rank())];
    EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "first")));
    EXPECT_TRUE(succeeds(rank.group.finish()));
    EXPECT_TRUE(succeeds(rank.group.barrier("together")));
    if (rank.group.rank() != 0) return;
    EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "alone")));
  });
  EXPECT_GE(nccl_.aborted, 1);
  EXPECT_EQ(nccl_.communicators, 0);
}

// What NCCL has not waits for the computation where it is called.
TEST_F(NcclInOrder, StagedCollectivesFindWhatIsComputed) {
  on_ranks_in_order([&](const Rank& rank) {
    Vector x(memory_, 10);
    rank.computation.call([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
    rank.write(x, static_cast<float>(rank.group.rank()));
    EXPECT_TRUE(succeeds(rank.group.all_reduce_max(x.all(), "largest")));
    EXPECT_EQ(x.values()[0], kDeviceRanks - 1);
    EXPECT_TRUE(succeeds(rank.group.barrier("end")));
  });
  EXPECT_EQ(nccl_.calls, 0);
}

TEST(OpenNccl, SaysWhatIsMissing) {
  const absl::Status none = open_nccl("libnccl-that-nobody-has.so").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr("libnccl-that-nobody-has.so is not found"));
  const absl::Status other = open_nccl("libm.so.6").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("has no ncclGetVersion"));
}

}  // namespace
}  // namespace muster::trainer

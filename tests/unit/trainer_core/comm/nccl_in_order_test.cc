// Groups over a fake NCCL (fake_nccl.h) in a computation's order: which work runs ahead, what the
// page shows, and how faults end outstanding collectives.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/comm/device_collectives.h"
#include "tests/unit/trainer_core/comm/fake_nccl.h"
#include "tests/unit/trainer_core/locked_memory.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/comm/nccl_group.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/comm/staged_group.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Groups that follow a computation of their rank's.
class NcclInOrder : public testing::Test {
 protected:
  struct Rank {
    ProcessGroup& group;
    ThreadQueue& computation;
    std::string page;

    // Makes the device write these values when it reaches this call.
    void write(Vector& vector, float value) const {
      computation.call([&vector, value] { vector.set(value); });
    }
    GroupProgress shown() const { return read_progress_page(page).value().groups[0]; }
    void wait_for_device() const { computation.mark()->wait(); }
    void wait_until_started(uint64_t count) const { wait_for_collective(page, count); }
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
                         std::chrono::milliseconds timeout = kRoundTimeout, bool follows = true) {
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
        const auto computation = std::make_shared<ThreadQueue>(memory_.runs, memory_.now);
        if (follows) group->follow(computation);
        body({*group, *computation, path});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // Expects the error of the second of three collectives in which rank 2 does not take part, once
  // `and_then` has happened on the other ranks: from finish(), and from the next call. The device
  // continues in any case.
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
            rank.wait_until_started(2);
          }
          all_have_called.arrive_and_wait();
          if (is_there) {
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

  LockedMemory memory_;
  FakeNccl nccl_{memory_, [](void* stream, std::function<void()> work) {
                   static_cast<ThreadQueue*>(stream)->call(std::move(work));
                 }};
};

TEST_F(NcclInOrder, MatchOtherGroups) {
  std::vector<std::vector<float>> expected, ours;
  on_ranks_in_order([&](const Rank& rank) { run_collectives(rank.group, memory_, expected); },
                    kRoundTimeout, /*follows=*/false);
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
    // The watcher has one, and one waits for room.
    EXPECT_LE(rank.shown().enqueued, 1 + kOutstandingMax + 2);
    gate.open();
    caller.join();
    EXPECT_TRUE(succeeds(rank.group.finish()));
    EXPECT_EQ(rank.shown().completed, 1 + kCalls);
    EXPECT_TRUE(succeeds(rank.group.barrier("end")));
  });
}

// A rank's computation is not collective time, but waiting for peers is. The devices' clock
// advances while only rank 0 computes.
TEST_F(NcclInOrder, BusyIsTheDevicesWaitForPeers) {
  constexpr auto kLate = std::chrono::milliseconds(200);
  std::atomic<Instant> now = Instant();
  memory_.now = [&] { return now.load(); };
  std::latch others_wait(kDeviceRanks - 1);
  on_ranks_in_order([&](const Rank& rank) {
    Vector x(memory_, 10);
    EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "first")));
    EXPECT_TRUE(succeeds(rank.group.finish()));
    EXPECT_TRUE(succeeds(rank.group.barrier("together")));
    const Duration before = rank.group.busy();
    const bool is_late = rank.group.rank() == 0;
    if (is_late) {
      rank.computation.call([&] {
        others_wait.wait();
        now = now.load() + kLate;
      });
    }
    EXPECT_TRUE(succeeds(rank.group.all_reduce(x.all(), "second")));
    if (!is_late) {
      rank.wait_until_started(2);
      others_wait.count_down();
    }
    EXPECT_TRUE(succeeds(rank.group.finish()));
    EXPECT_EQ(rank.group.busy() - before, is_late ? Duration::zero() : kLate);
    EXPECT_TRUE(succeeds(rank.group.barrier("end")));
  });
}

TEST_F(NcclInOrder, NcclErrorsEndOutstandingCollectives) {
  expect_second_fails(absl::StatusCode::kUnavailable, "remote process exited",
                      [&](ProcessGroup&) { nccl_.remote_error = true; });
}

TEST_F(NcclInOrder, AbortEndsOutstandingCollectives) {
  expect_second_fails(absl::StatusCode::kUnavailable, "aborted", [](ProcessGroup& group) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::thread([&] { group.abort(); }).join();
  });
}

TEST_F(NcclInOrder, ACollectiveTakesABoundedTimeOnceItHasStarted) {
  expect_second_fails(
      absl::StatusCode::kDeadlineExceeded, "nothing for 2 s", [](ProcessGroup&) {},
      std::chrono::milliseconds(2'000));
}

// When a rank leaves, no peer waits for its outstanding calls.
TEST_F(NcclInOrder, LeavingAborts) {
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

// All groups of a rank, of which two are on its device at one time: those of "tensor" have two
// ranks, and the world's has four.
class GroupsOfARank : public NcclInOrder {
 protected:
  // Returns the status of finish() on rank 0 after it has called collectives of both groups in
  // which no other rank takes part, once `and_then` has happened.
  absl::Status finish_of_rank_0(const std::function<void(ProcessGroups&)>& and_then) {
    constexpr int kRanks = 4;
    const Mesh mesh = Mesh::resolve({.ici = {2, 1, 1, 1, 1, 1, 2}}, 1, kRanks).value();
    const LocalWorld world(kRanks, std::chrono::milliseconds(20'000));
    absl::Status status;
    std::barrier all_have_both(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto computation = std::make_shared<ThreadQueue>(memory_.runs);
        Vector x(memory_, 10);  // outlives what is outstanding
        ProcessGroups groups(world.join(rank), mesh, nullptr, memory_);
        groups.use_nccl({.api = nccl_.api(), .timeout = std::chrono::minutes(1)});
        groups.follow(computation);
        ProcessGroup& tensor = groups.of({.axes = {MeshAxis::kTensor}});
        for (ProcessGroup* const group : {&tensor, &groups.world()})
          EXPECT_TRUE(succeeds(group->all_reduce(x.all(), "together")));
        EXPECT_TRUE(succeeds(groups.finish()));
        all_have_both.arrive_and_wait();
        if (rank != 0) return;
        for (ProcessGroup* const group : {&tensor, &groups.world()})
          EXPECT_TRUE(succeeds(group->all_reduce(x.all(), "alone")));
        and_then(groups);
        status = groups.finish();
        EXPECT_EQ(groups.world().all_reduce(x.all(), "later"), status);
        EXPECT_EQ(tensor.all_reduce(x.all(), "later"), status);
        computation->mark()->wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(nccl_.communicators, 0);
    return status;
  }
};

// Whichever it is, and in whatever order they are waited for.
TEST_F(GroupsOfARank, TheFirstFailureEndsTheOthers) {
  for (const auto& [ranks, group] :
       {std::pair(2, "tensor nccl"), std::pair(4, "data+tensor nccl")}) {
    const absl::Status status =
        finish_of_rank_0([&](ProcessGroups&) { nccl_.remote_error_of = ranks; });
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("of group \"" + std::string(group) + "\") failed"),
                      HasSubstr("remote process exited")));
    nccl_.remote_error_of = 0;
  }
}

// NCCL is not aware of it.
TEST_F(GroupsOfARank, SoDoesAFailureOfTheHostsNumbers) {
  const absl::Status status = finish_of_rank_0([&](ProcessGroups& groups) {
    EXPECT_TRUE(absl::IsUnavailable(groups.world().barrier("who is there")));
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("barrier \"who is there\""), HasSubstr("is gone")));
}

// Collectives that NCCL lacks wait for the computation when they are called.
TEST_F(NcclInOrder, StagedCollectivesWaitForTheComputation) {
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

}  // namespace
}  // namespace muster::trainer

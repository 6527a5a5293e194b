// Groups over a NCCL that tests have (fake_nccl.h): what they bring together, and how faults end.
#include "trainer_core/comm/nccl_group.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/trainer_core/comm/device_collectives.h"
#include "tests/unit/trainer_core/comm/fake_nccl.h"
#include "tests/unit/trainer_core/locked_memory.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/comm/staged_group.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
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
  // Returns each rank's status of an all-reduce.
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

TEST_F(NcclGroups, MatchOtherGroups) {
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

// NCCL itself would read and write behind the buffers.
TEST_F(NcclGroups, RefuseSlicesThatDoNotCoverTheBuffers) {
  const auto group_of_one = [&](LocalWorld& world) {
    auto staged = staged_group(make_world_group(world.join(0), "world", nullptr), memory_);
    return nccl_group(std::move(staged), {.api = nccl_.api()}, memory_, nullptr, 0);
  };
  const auto exchange = [&](size_t sent, size_t slice, bool with_counts) {
    LocalWorld world(1, std::chrono::milliseconds(20'000));
    const auto group = group_of_one(world);
    Vector from(memory_, input_of(0, 3)), to(memory_, input_of(0, 3));
    const std::vector<size_t> counts{slice};
    if (with_counts) {
      (void)group->all_to_all_v(from.all().part(0, sent), counts, to.all(), counts, "swap");
    } else {
      (void)group->all_to_all(from.all().part(0, sent), to.all(), "swap");
    }
  };
  EXPECT_DEATH(exchange(2, 0, false), "all_to_all of 2 into 3 elements among 1 ranks");
  EXPECT_DEATH(exchange(3, 2, true), "all_to_all of 3 into 3 elements among 1 ranks");
}

TEST_F(NcclGroups, LimitNcclsBlocksPerKernel) {
  statuses();
  EXPECT_EQ(nccl_.max_ctas, NcclConfig::kUndefined);
  statuses([&](int) { return NcclOptions{.api = nccl_.api(), .blocks_max = 22}; });
  EXPECT_EQ(nccl_.max_ctas, 22);
}

// The layouts of nccl.h in versions 2.14 and 2.17.
TEST(NcclConfig, IsAsTheLibrarysVersionHasIt) {
  const NcclConfig old = NcclConfig::of(21'605), now = NcclConfig::of(22'809);
  EXPECT_EQ(old.size, 24U);
  EXPECT_EQ(old.version, 21'400U);
  EXPECT_EQ(now.size, 40U);
  EXPECT_EQ(now.version, 21'700U);
}

// Collectives of host buffers need no communicator.
TEST_F(NcclGroups, DoNotTransferHostBuffers) {
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

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

// The error lists the existing interfaces: the setting must have meant one of them.
TEST_F(NcclGroups, NameTheNetworkSettings) {
  nccl_.failing_id = true;
  const Environment interface("NCCL_SOCKET_IFNAME", "nosuch0");
  const auto all = statuses();
  EXPECT_EQ(all[0].code(), absl::StatusCode::kFailedPrecondition) << "it is why the others fail";
  EXPECT_THAT(
      std::string(all[0].message()),
      AllOf(HasSubstr("rank 0 of group world cannot begin NCCL (NCCL: invalid usage); check the "
                      "network between their nodes: NCCL_SOCKET_IFNAME (here nosuch0, of "),
            ContainsRegex("of ([^ ]+, )*lo[,)]"), HasSubstr("NCCL_IB_HCA")));
  for (const size_t rank : {size_t{1}, size_t{2}}) {
    EXPECT_EQ(all[rank].code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(all[rank].message()),
                HasSubstr("rank 0 of group world cannot begin NCCL (NCCL: invalid usage)"));
  }
}

TEST_F(NcclGroups, RefuseAnOrderOfLaunches) {
  const Environment order("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  for (const absl::Status& status : statuses()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("rank 0 of group world has NCCL_LAUNCH_ORDER_IMPLICIT in its environment"));
  }
  const Environment none("NCCL_LAUNCH_ORDER_IMPLICIT", "0");
  for (const absl::Status& status : statuses()) EXPECT_TRUE(status.ok()) << status;
}

// The others wait for the rank until their timeout, and NCCL does not name it.
TEST_F(NcclGroups, NameARankWithoutACommunicator) {
  nccl_.failing_init = 1;
  const auto all = statuses(connecting_for_50_ms());
  EXPECT_EQ(all[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(all[1].code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(all[2].code(), absl::StatusCode::kUnavailable);
  for (const absl::Status& status : all) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("of group world these ranks have no NCCL communicator: 1 (NCCL: "
                          "unhandled system error); 0, 2 (nothing for 0.05 s); check the "
                          "network"));
  }
  EXPECT_EQ(nccl_.communicators, 0);
}

// A peer has left meanwhile: no rank of the group is the cause.
TEST_F(NcclGroups, ARankThatHasLostAnotherIsNotTheOneThatFailed) {
  nccl_.failing_init = 1;
  nccl_.init_error = 6;
  for (const absl::Status& status : statuses(connecting_for_50_ms()))
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST_F(NcclGroups, WaitForACommunicatorABoundedTime) {
  nccl_.pending_init = 0;
  for (const absl::Status& status : statuses(connecting_for_50_ms())) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no NCCL communicator: 0, 1, 2 (nothing for 0.05 s, and NCCL has found "
                          "no error on any rank); check the network"));
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

// A stuck device: the rank waits until abort().
TEST_F(NcclGroups, AbortEndsACollectiveThatWaits) {
  on_groups([&](ProcessGroup& group) {
    Vector data(memory_, input_of(group.rank(), 10));
    EXPECT_TRUE(succeeds(group.all_reduce(data.all(), "first")));
    EXPECT_TRUE(succeeds(group.barrier("all have it")));
    memory_.runs = false;
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
  memory_.runs = false;
  const auto all = statuses([&](int) {
    return NcclOptions{.api = nccl_.api(), .timeout = std::chrono::milliseconds(30)};
  });
  for (const absl::Status& status : all)
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST(OpenNccl, NamesTheMissingPart) {
  const absl::Status none = open_nccl("libnccl-that-does-not-exist.so").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("libnccl-that-does-not-exist.so is not found"));
  const absl::Status other = open_nccl("libm.so.6").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("has no ncclGetVersion"));
}

}  // namespace
}  // namespace muster::trainer

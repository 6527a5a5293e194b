#include "trainer_core/comm/world.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/comm/collectives.h"
#include "tests/unit/trainer_core/comm/forked_ranks.h"
#include "tests/unit/trainer_core/comm/store_server.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/comm/shm.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;
using testing::ContainsRegex;
using testing::HasSubstr;

// The host that each rank reports.
using Hosts = std::function<std::string(int rank)>;

class World : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }

  WorldOptions options(int rank, int size) const {
    WorldOptions options;
    options.gloo.rank = rank;
    options.gloo.size = size;
    options.gloo.rendezvous = store_.address();
    options.gloo.scope = "7/1/";
    options.gloo.connect_timeout = milliseconds(20'000);
    options.gloo.timeout = milliseconds(20'000);
    return options;
  }

  std::unique_ptr<ProcessGroup> connect(const WorldOptions& options,
                                        ProgressWriter* page = nullptr) {
    auto transport = connect_world(options);
    EXPECT_TRUE(transport.ok()) << transport.status();
    return transport.ok() ? make_world_group(std::move(*transport), "data", page) : nullptr;
  }

  GroupMaker one_host() {
    return [this](int rank, int size) { return connect(options(rank, size)); };
  }
  GroupMaker on_hosts(const Hosts& hosts) {
    return [this, hosts](int rank, int size) {
      WorldOptions with = options(rank, size);
      with.host = hosts(rank);
      return connect(with);
    };
  }

  StoreServer store_;
};

TEST_P(World, EveryCollectiveMatchesTheReferenceOnOneHost) {
  on_ranks(GetParam(), one_host(), check_everything);
}
TEST_P(World, SentBytesMatchTheFormulas) {
  if (GetParam() > 1) on_ranks(GetParam(), one_host(), check_sent_bytes);
}
INSTANTIATE_TEST_SUITE_P(Sizes, World, testing::Values(1, 2, 3, 4, 8));

TEST_F(World, TransfersLargerThanOneRound) { on_ranks(4, one_host(), check_large); }

// Ranks 3 and 6 share memory with no other rank.
TEST_F(World, HostsOfUnequalSizeAndRanksWithoutOne) {
  const auto host = [](int rank) {
    return std::vector<std::string>{"a", "b", "a", "", "a", "b", ""}[static_cast<size_t>(rank)];
  };
  on_ranks(7, on_hosts(host), check_everything);
}

TEST_F(World, TransfersLargerThanOneRoundBetweenHosts) {
  on_ranks(4, on_hosts([](int rank) { return rank < 3 ? "a" : "b"; }), check_large);
}

// Two hosts of two ranks, as in the mesh: each phase uses one transport.
TEST_F(World, ReductionByLevelsOverHosts) {
  const auto mesh =
      Mesh::resolve({.ici = {1, 1, 2, 1, 1, 1, 1}, .dcn = {2, 1, 1, 1, 1, 1, 1}}, 2, 2);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      WorldOptions with = options(rank, 4);
      with.host = mesh->node_of(rank) == 0 ? "a" : "b";
      auto transport = connect_world(with);
      ASSERT_TRUE(transport.ok()) << transport.status();
      ProcessGroups groups(std::move(*transport), *mesh, nullptr);
      // Several blocks of the network's rounds, each of which has many blocks of shared memory.
      constexpr size_t kCount = 5'000'003;
      std::vector<float> data(kCount), expected(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        data[i] = element(rank, i);
        expected[i] = (element(0, i) + element(1, i)) + (element(2, i) + element(3, i));
      }
      ASSERT_TRUE(groups.world().all_reduce(data, "gradients").ok());
      EXPECT_EQ(data, expected);
      const SentBytes sent = groups.sent();
      EXPECT_NEAR(static_cast<double>(sent.total), 4.0 * kCount * 1.5, 64);
      EXPECT_NEAR(static_cast<double>(sent.across_nodes), 4.0 * kCount * 0.5, 64);
      constexpr size_t kSlice = 2'100'001;  // more than a block
      std::vector<float> mine(kSlice), whole(4 * kSlice), sums(4 * kSlice);
      for (size_t i = 0; i < whole.size(); ++i) {
        whole[i] = data[i % kCount];
        sums[i] = 4 * whole[i];
      }
      ASSERT_TRUE(groups.world().reduce_scatter(whole, mine, "scatter").ok());
      ASSERT_TRUE(groups.world().all_gather(mine, whole, "gather").ok());
      EXPECT_TRUE(whole == sums);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(World, ATimeoutNamesTheSilentRankAndEndsThePeers) {
  std::atomic<int> done{0};
  const GroupMaker make = [&](int rank, int size) {
    WorldOptions short_wait = options(rank, size);
    short_wait.gloo.timeout = milliseconds(rank == 0 ? 200 : 20'000);
    return connect(short_wait);
  };
  on_ranks(3, make, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      while (done < 2) std::this_thread::yield();
      return;
    }
    std::vector<float> data(10);
    const absl::Status status = group.all_reduce(data, "stuck");
    if (group.rank() == 0) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      // Rank 2, too, where it has not begun by then.
      EXPECT_THAT(std::string(status.message()),
                  ContainsRegex("nothing came from ranks? 1(, 2)? within 200 ms"));
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(status.message()),
                  ContainsRegex("rank 0 gave up after 200 ms waiting for ranks? 1(, 2)?"));
    }
    EXPECT_EQ(group.barrier("later").code(), absl::StatusCode::kUnavailable);
    ++done;
  });
}

TEST_F(World, AbortFromAnotherThreadEndsTheWait) {
  EXPECT_THAT(abort_from_another_thread(
                  [&](int rank, ProgressWriter* page) { return connect(options(rank, 2), page); }),
              HasSubstr("rank 0 aborted"));
}

TEST_F(World, RanksThatDoNotComeAreNamed) {
  WorldOptions alone = options(1, 4);
  alone.gloo.connect_timeout = milliseconds(200);
  const absl::Status status = connect_world(alone).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("waited 200 ms for these ranks: 0, 2, 3"));
}

// Ranks of one host that are about to meet, without a store.
class Meeting : public testing::Test {
 protected:
  Meeting() {
    for (int rank = 0; rank < kRanks; ++rank) {
      auto seat = ShmSeat::take(kRanks);
      EXPECT_TRUE(seat.ok()) << seat.status();
      names_[rank] = seat->listener().name();
      seats_.push_back(std::move(*seat));
    }
  }

  absl::StatusOr<std::shared_ptr<Transport>> meet(int rank, milliseconds within) const {
    return connect_shm(seats_[static_cast<size_t>(rank)], {.rank = rank,
                                                           .world_size = kRanks,
                                                           .listeners = names_,
                                                           .deadline = monotonic_now() + within});
  }
  Descriptor call(int rank) const {
    auto connection = connect_to_listener(names_.at(rank), monotonic_now() + kLong);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return std::move(*connection);
  }

  static constexpr int kRanks = 3;
  static constexpr milliseconds kLong{60'000};

  std::vector<ShmSeat> seats_;
  std::map<int, std::string> names_;
};

// Unknown clients connect before any rank does: some send nothing, some disconnect, some send
// invalid messages. There are more than the listener keeps.
TEST_F(Meeting, UnknownClientsDoNotBlockTheMeeting) {
  std::vector<Descriptor> strangers;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int i = 0; i < 100; ++i) strangers.push_back(call(rank));
    call(rank);  // and closes
    for (const int claimed : {0, 1, 2, 3, -1}) {
      strangers.push_back(call(rank));
      const Descriptor& no_memory = strangers.back();
      ASSERT_TRUE(send_message(no_memory, claimed, no_memory.get()).ok());
    }
    strangers.push_back(call(rank));
    ASSERT_EQ(write(strangers.back().get(), "GET", 3), 3);
  }
  on_ranks(
      kRanks,
      [&](int rank, int) {
        auto transport = meet(rank, kLong);
        EXPECT_TRUE(transport.ok()) << transport.status();
        return transport.ok() ? make_world_group(std::move(*transport), "data", nullptr) : nullptr;
      },
      [](ProcessGroup& group) { check_reductions(group, 1000); });
}

// Whatever keeps coming, the deadline is one.
TEST_F(Meeting, MissingRanksAreNamedInTime) {
  std::atomic<bool> done{false};
  std::thread strangers([&] {
    std::vector<Descriptor> open;
    for (int i = 0; i < 10'000 && !done; ++i) {
      open.push_back(call(0));
      if (open.size() > 100) open.erase(open.begin());
      std::this_thread::sleep_for(milliseconds(1));  // no faster than they are refused
    }
  });
  const absl::Status status = meet(0, milliseconds(300)).status();
  done = true;
  strangers.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing came from ranks 1, 2"));
}

TEST_F(Meeting, APeerThatGivesUpEndsTheWait) {
  std::thread waiting([&] {
    const absl::Status status = meet(1, kLong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  });
  pollfd called{seats_[0].listener().socket().get(), POLLIN, 0};
  EXPECT_EQ(poll(&called, 1, static_cast<int>(kLong.count())), 1);
  { const ShmSeat gone = std::move(seats_[0]); }
  waiting.join();
}

WorldOptions process_options(int rank, int size, const std::string& store) {
  WorldOptions options;
  options.gloo = {.rank = rank, .size = size, .rendezvous = store, .scope = "7/1/"};
  options.gloo.timeout = std::chrono::minutes(1);
  return options;
}

// A killed process sends no message. Its peers notice within a moment, long before the timeout of a
// minute.
TEST(Processes, AKilledRankIsNamedByItsPeers) {
  const auto reduce_until_it_fails = [](ProcessGroup& group, absl::Status status) {
    std::vector<float> data(300'000);
    while (status.ok()) status = group.all_reduce(data, "gradients");
    return status.code() == absl::StatusCode::kUnavailable ? std::string(status.message()) : "";
  };
  const auto join = [](int rank, const std::string& store) {
    auto transport = connect_world(process_options(rank, 3, store));
    return transport.ok() ? make_world_group(std::move(*transport), "data", nullptr) : nullptr;
  };
  const ForkedRanks ranks(3, [&](int rank, const std::string& store) {
    const auto group = join(rank, store);
    if (group == nullptr) return 4;
    // Rank 2 may be dead before this rank is out of the barrier.
    const std::string error = reduce_until_it_fails(*group, group->barrier("all are here"));
    return error.find("rank 2 died") != std::string::npos ? 0 : 5;
  });
  const StoreServer store;
  ranks.set_address(store.address());
  const auto group = join(0, store.address());
  ASSERT_NE(group, nullptr);
  ASSERT_TRUE(group->barrier("all are here").ok());
  kill(ranks.child(2), SIGKILL);
  EXPECT_THAT(reduce_until_it_fails(*group, absl::OkStatus()), HasSubstr("rank 2 died"));
  EXPECT_EQ(ranks.wait_for(1), 0);
  EXPECT_TRUE(WIFSIGNALED(ranks.wait_for(2)));
}

// One rank cannot create a file of the size: no rank then shares memory, the job still runs, and a
// line gives the reason.
TEST(Processes, ARankWithoutSharedMemoryMovesItsHostToGloo) {
  const auto sum_is_right = [](Transport& transport) {
    std::vector<float> data(1000, 1);
    const auto owner = std::shared_ptr<Transport>(&transport, [](Transport*) {});
    const auto group = make_world_group(owner, "data", nullptr);
    return group->all_reduce(data, "sum").ok() && data == std::vector<float>(1000, 3);
  };
  const ForkedRanks ranks(3, [&](int rank, const std::string& store) {
    const rlimit small{1 << 20, 1 << 20};
    if (rank == 2 && setrlimit(RLIMIT_FSIZE, &small) != 0) return 4;
    std::ostringstream notes;
    WorldOptions options = process_options(rank, 3, store);
    options.notes = &notes;
    auto transport = connect_world(options);
    if (!transport.ok() || !sum_is_right(**transport)) return 5;
    return rank != 2 || notes.str().find("files may have 1048576 bytes") != std::string::npos ? 0
                                                                                              : 6;
  });
  const StoreServer store;
  ranks.set_address(store.address());
  auto transport = connect_world(process_options(0, 3, store.address()));
  ASSERT_TRUE(transport.ok()) << transport.status();
  EXPECT_TRUE(sum_is_right(**transport));
  EXPECT_EQ(ranks.wait_for(1), 0);
  EXPECT_EQ(ranks.wait_for(2), 0);
}

}  // namespace
}  // namespace muster::trainer

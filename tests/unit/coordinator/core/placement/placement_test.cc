#include "coordinator/core/placement/placement.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/core/records/sizes.h"

namespace muster::coordinator {
namespace {

using Names = std::vector<WorkerName>;

Host host(const std::string& name, int32_t slots, int32_t slots_free, bool held = false) {
  return {WorkerName(name), Incarnation(5), slots, slots_free, held, {}};
}

Names names(std::initializer_list<const char*> list) {
  Names out;
  for (const char* name : list) out.emplace_back(name);
  return out;
}

TEST(Place, NumbersRanksContiguouslyPerHost) {
  const Placement placement =
      place({2, {}, {}}, 2, {host("n1", 4, 1), host("n2", 4, 2), host("n3", 4, 4)});
  ASSERT_EQ(placement.fit, Fit::kNow);
  ASSERT_EQ(placement.ranks.size(), 4U);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const RankPlacement& placed = placement.ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(placed.rank, Rank(rank));
    EXPECT_EQ(placed.worker, WorkerName(rank < 2 ? "n2" : "n3"));
    EXPECT_EQ(placed.local_rank, rank % 2);
    EXPECT_EQ(placed.incarnation, Incarnation(5));
  }
}

TEST(Place, DistinguishesBusyFromTooSmall) {
  EXPECT_EQ(place({2, {}, {}}, 2, {host("n1", 2, 2), host("n2", 2, 0)}).fit, Fit::kLater);
  EXPECT_EQ(place({3, {}, {}}, 2, {host("n1", 2, 2), host("n2", 4, 4)}).fit, Fit::kNever);
  EXPECT_EQ(place({1, {}, {}}, 1, {}).fit, Fit::kNever);
  EXPECT_TRUE(place({2, {}, {}}, 2, {host("n1", 2, 2)}).ranks.empty());
}

TEST(Place, GpusAreCountedBesideSlots) {
  const auto with_gpus = [](const char* name, int32_t gpus, int32_t free) {
    Host one = host(name, 4, 4);
    one.gpus = gpus;
    one.gpus_free = free;
    return one;
  };
  const std::vector<Host> hosts = {host("cpu", 4, 4), with_gpus("busy", 4, 1),
                                   with_gpus("free", 4, 4)};
  const auto placed = [&](int32_t ranks, int32_t each, int32_t nodes = 1) {
    return place({ranks, {}, {}, {}, each}, nodes, hosts);
  };
  EXPECT_EQ(nodes_of(placed(2, 1).ranks), names({"free"}));
  EXPECT_EQ(nodes_of(placed(1, 1).ranks), names({"busy"}));
  EXPECT_EQ(placed(2, 1, 2).fit, Fit::kLater);
  EXPECT_EQ(placed(2, 3).fit, Fit::kNever) << "no host has six GPUs";
  EXPECT_EQ(nodes_of(placed(4, 0).ranks), names({"cpu"}));
  // The share of a slot: no GPU on a node without GPUs.
  EXPECT_EQ(nodes_of(placed(4, kGpusOfSlot, 2).ranks), names({"cpu", "free"}));
}

TEST(Place, ASpareTakesThePlaceOfALostNode) {
  const std::vector<Host> hosts = {host("a", 1, 1), host("b", 1, 1), host("c", 1, 1),
                                   host("spare", 1, 1, true)};
  const PlacementRequest request{1, names({"c", "lost", "b"}), names({"spare"})};
  EXPECT_EQ(nodes_of(place(request, 3, hosts).ranks), names({"c", "spare", "b"}));
  // Smaller: a node whose position no longer exists takes an open position before any other node
  // does.
  EXPECT_EQ(nodes_of(place(request, 2, hosts).ranks), names({"c", "b"}));
  // Larger: the other nodes retain their positions.
  EXPECT_EQ(nodes_of(place(request, 4, hosts).ranks), names({"c", "a", "b", "spare"}));
}

TEST(Place, WhatIsAvoidedIsNotKeptFree) {
  const std::vector<Host> hosts = {host("a", 1, 1), host("b", 1, 1), host("c", 1, 1)};
  const PlacementRequest request{1, names({"a"}), {}, {WorkerName("b")}};
  EXPECT_EQ(choose_held(request, 2, hosts), names({"c"}));
}

// Former nodes of the job are avoided, too; as few of them as possible are used.
TEST(Place, WhatIsAvoidedIsTakenLast) {
  const std::vector<Host> hosts = {host("a", 1, 1), host("b", 1, 1), host("c", 1, 1)};
  const PlacementRequest request{1, names({"a", "b"}), {}, {WorkerName("a"), WorkerName("b")}};
  EXPECT_EQ(nodes_of(place(request, 1, hosts).ranks), names({"c"}));
  EXPECT_EQ(nodes_of(place(request, 2, hosts).ranks), names({"a", "c"}));
  EXPECT_EQ(nodes_of(place(request, 3, hosts).ranks), names({"a", "b", "c"}));
}

TEST(Place, OthersSparesAreTakenLast) {
  const std::vector<Host> hosts = {host("a", 1, 1, true), host("b", 1, 1), host("c", 1, 1)};
  EXPECT_EQ(nodes_of(place({1, {}, {}}, 2, hosts).ranks), names({"b", "c"}));
  EXPECT_EQ(nodes_of(place({1, {}, {}}, 3, hosts).ranks), names({"a", "b", "c"}));
  EXPECT_EQ(choose_held({1, {}, {}}, 1, hosts), names({"b"}));
  EXPECT_EQ(choose_held({1, {}, names({"c"})}, 2, hosts), names({"c", "b"}));
  EXPECT_EQ(choose_held({1, names({"b"}), {}}, 9, hosts), names({"c", "a"}));
}

// Random fleets and former placements.
TEST(Place, KeepsWhatItCanAndNeverGivesOnePlaceTwice) {
  std::mt19937_64 random(11);
  const auto below = [&random](int32_t n) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<Host> hosts;
    Names known;
    for (int32_t i = 0; i < 12; ++i) {
      known.emplace_back(absl::StrCat("n", 10 + i));
      const int32_t slots = 1 + below(4);
      if (below(4) > 0)
        hosts.push_back({known.back(), Incarnation(1), slots, below(slots + 1), below(3) == 0, {}});
    }
    std::ranges::shuffle(known, random);
    const auto cut = known.begin() + below(6);
    const PlacementRequest request{1 + below(3), Names(known.begin(), cut),
                                   Names(cut, cut + below(4))};
    const int32_t nodes = 1 + below(6);
    const Placement placement = place(request, nodes, hosts);
    const int32_t free = nodes_free(request, hosts);
    ASSERT_EQ(placement.fit == Fit::kNow, free >= nodes) << "a gang is placed when there is room";
    const Names seats = nodes_of(placement.ranks);
    ASSERT_EQ(seats.size(), placement.fit == Fit::kNow ? static_cast<size_t>(nodes) : 0U);
    ASSERT_EQ(std::ssize(placement.ranks), std::ssize(seats) * request.ranks_per_node);
    const auto room_on = [&](const WorkerName& name) {
      const auto found = std::ranges::find(hosts, name, &Host::name);
      return found != hosts.end() && found->slots_free >= request.ranks_per_node;
    };
    for (size_t i = 0; i < seats.size(); ++i) {
      ASSERT_TRUE(room_on(seats[i]));
      ASSERT_EQ(std::ranges::count(seats, seats[i]), 1);
      const bool was_there = i < request.previous.size() && room_on(request.previous[i]);
      ASSERT_TRUE(!was_there || seats[i] == request.previous[i])
          << "the ranks could have stayed on the node";
    }
    const Names held = choose_held({request.ranks_per_node, seats, request.held}, 3, hosts);
    ASSERT_LE(held.size(), 3U);
    for (const WorkerName& name : held) {
      ASSERT_TRUE(room_on(name));
      ASSERT_EQ(std::ranges::count(held, name), 1);
      ASSERT_EQ(std::ranges::count(seats, name), 0) << "a spare is lost with its job's node";
    }
    for (const WorkerName& name : request.held) {
      const bool could_stay = room_on(name) && std::ranges::count(seats, name) == 0;
      ASSERT_TRUE(!could_stay || held.size() == 3 || std::ranges::count(held, name) == 1);
    }
  }
}

}  // namespace
}  // namespace muster::coordinator

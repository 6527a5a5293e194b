#include "coordinator/core/placement/network.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/core/placement/placement.h"
#include "coordinator/core/records/sizes.h"

namespace muster::coordinator {
namespace {

using ::testing::ElementsAre;

Host host_at(const std::string& name, const std::string& switches, const std::string& domain = "") {
  return {.name = WorkerName(name),
          .incarnation = Incarnation(1),
          .slots = 1,
          .slots_free = 1,
          .switches = switches,
          .domain = domain};
}

void settle(std::vector<Host>& hosts) {
  std::vector<Host*> all;
  for (Host& host : hosts) all.push_back(&host);
  gather_domains(all);
  std::ranges::sort(hosts, comes_before);
}

std::vector<std::string> names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name.value());
  return names;
}

// `racks` racks of `each` nodes, two racks below each leaf.
std::vector<Host> racks(int racks, int each) {
  std::vector<Host> hosts;
  for (int rack = 0; rack < racks; ++rack)
    for (int node = 0; node < each; ++node)
      hosts.push_back(host_at(absl::StrCat("r", rack, "n", node),
                              absl::StrCat("spine", rack / 8, ".leaf", rack / 2),
                              absl::StrCat("rack", rack)));
  settle(hosts);
  return hosts;
}

PlacementRequest request_for(const std::vector<Host>& all, const std::vector<std::string>& previous,
                             std::set<WorkerName> avoid = {}) {
  PlacementRequest request;
  request.avoid = std::move(avoid);
  for (const std::string& name : previous) {
    request.previous.emplace_back(name);
    const auto host = std::ranges::find(all, WorkerName(name), &Host::name);
    request.places[host->name] = {host->switches, host->domain};
  }
  return request;
}

std::vector<Host> without(std::vector<Host> hosts, const std::set<std::string>& names) {
  std::erase_if(hosts, [&](const Host& host) { return names.contains(host.name.value()); });
  return hosts;
}

std::vector<std::string> placed(const PlacementRequest& request, int32_t nodes,
                                const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const WorkerName& name : nodes_of(place(request, nodes, hosts).ranks))
    names.push_back(name.value());
  return names;
}

TEST(Network, HostsBelowOneSwitchAreAdjacent) {
  std::vector<Host> hosts = {host_at("a", "s.l10"), host_at("b", "s.l2"),  host_at("c", "s"),
                             host_at("d", "s-1.x"), host_at("e", "s.l10"), host_at("f", "")};
  settle(hosts);
  EXPECT_THAT(names_of(hosts), ElementsAre("f", "c", "b", "a", "e", "d"));
}

// Each node of this rack is below the leaf of its rail.
TEST(Network, ADomainAcrossLeavesStaysTogether) {
  std::vector<Host> hosts = {host_at("a", "s.l1", "rack2"), host_at("b", "s.l2", "rack2"),
                             host_at("c", "s.l1", "rack1"), host_at("d", "s.l2", "rack1"),
                             host_at("e", "s.l1")};
  settle(hosts);
  EXPECT_THAT(names_of(hosts), ElementsAre("c", "d", "a", "b", "e"));
}

TEST(Network, LevelsOfSwitches) {
  EXPECT_EQ(levels_of(""), 0U);
  EXPECT_EQ(levels_of("spine.leaf"), 2U);
  EXPECT_EQ(first_switches("spine.leaf", 1), "spine");
  EXPECT_EQ(first_switches("spine.leaf", 2), "spine.leaf");
  EXPECT_EQ(first_switches("spine.leaf", 3), "");
  EXPECT_EQ(first_switches("", 1), "");
}

TEST(Network, ANewJobGetsTheSmallestPartThatHasRoom) {
  // rack0 has 4 free nodes, rack1 2, rack2 3 and rack3 4.
  const std::vector<Host> hosts = without(racks(4, 4), {"r1n0", "r1n1", "r2n3"});
  EXPECT_THAT(placed({}, 2, hosts), ElementsAre("r1n2", "r1n3"));
  EXPECT_THAT(placed({}, 3, hosts), ElementsAre("r0n0", "r0n1", "r0n2"));
  EXPECT_THAT(placed({}, 4, hosts), ElementsAre("r0n0", "r0n1", "r0n2", "r0n3"));
  EXPECT_THAT(placed({}, 6, hosts), ElementsAre("r0n0", "r0n1", "r0n2", "r0n3", "r1n2", "r1n3"))
      << "one leaf";
  EXPECT_THAT(placed({}, 7, hosts),
              ElementsAre("r2n0", "r2n1", "r2n2", "r3n0", "r3n1", "r3n2", "r3n3"))
      << "the other leaf";
}

TEST(Network, ASegmentStaysInOneDomain) {
  const std::vector<Host> hosts = without(racks(3, 3), {});
  PlacementRequest request;
  EXPECT_THAT(placed(request, 4, hosts), ElementsAre("r0n0", "r0n1", "r0n2", "r1n0"));
  request.segment_nodes = 2;
  EXPECT_THAT(placed(request, 4, hosts), ElementsAre("r0n0", "r0n1", "r1n0", "r1n1"));
  // No domain has four nodes, so that pairs remain together.
  request.segment_nodes = 4;
  EXPECT_THAT(placed(request, 4, hosts), ElementsAre("r0n0", "r0n1", "r1n0", "r1n1"));
  request.segment_nodes = 2;
  EXPECT_EQ(placed(request, 8, hosts).size(), 8U) << "it starts even if segments are split";
}

TEST(Network, AReplacementComesFromTheDomainThenFromTheSwitchThenFromAnywhere) {
  const std::vector<Host> all = racks(4, 3);
  PlacementRequest request = request_for(all, {"r0n0", "r0n1", "r2n0", "r2n1"});
  // Two nodes of one rack are lost, and one of another; the others keep their ranks. The node that
  // is reserved for the job is farther away than a free one.
  request.held = {WorkerName("r3n2")};
  const std::vector<Host> left = without(all, {"r0n0", "r0n1", "r2n1"});
  EXPECT_THAT(placed(request, 4, left), ElementsAre("r0n2", "r1n0", "r2n0", "r2n2"));
  EXPECT_THAT(placed(request, 4, without(left, {"r2n2"})),
              ElementsAre("r0n2", "r1n0", "r2n0", "r3n2"));
  EXPECT_THAT(placed(request, 4, without(left, {"r2n2", "r0n2", "r1n0", "r1n1", "r1n2"})),
              ElementsAre("r3n0", "r3n1", "r2n0", "r3n2"));
}

TEST(Network, NodesBelowAFailedSwitchAreTakenOnlyIfNoOthersAreLeft) {
  std::vector<Host> all = {host_at("a1", "spine.leaf1"), host_at("a2", "spine.leaf1"),
                           host_at("a3", "spine.leaf1"), host_at("a4", "spine.leaf1"),
                           host_at("b1", "spine.leaf2"), host_at("b2", "spine.leaf2"),
                           host_at("b3", "spine.leaf2")};
  settle(all);
  PlacementRequest request = request_for(all, {"a1", "a2", "a3", "b1"}, {WorkerName("a1")});
  request.avoid.insert(WorkerName("a2"));
  request.places.erase(WorkerName("a1"));
  request.places.erase(WorkerName("a2"));
  for (const char* name : {"a1", "a2", "a3", "a4"}) request.suspect.insert(WorkerName(name));
  EXPECT_THAT(placed(request, 4, all), ElementsAre("b2", "b3", "a3", "b1"));
  EXPECT_THAT(placed(request, 4, without(all, {"b3"})), ElementsAre("b2", "a4", "a3", "b1"));
  EXPECT_THAT(choose_held(request, 4, all), ElementsAre(WorkerName("b2"), WorkerName("b3")));
}

TEST(Network, OneWorkerWithoutSwitchesDoesNotMoveItsDomain) {
  std::vector<Host> hosts = {host_at("a1", "spine.leaf1", "rack1"), host_at("a2", "", "rack1"),
                             host_at("b1", "other.leaf7", "rack2"),
                             host_at("b2", "spine.leaf1", "rack2")};
  settle(hosts);
  for (const Host& host : hosts)
    EXPECT_EQ(host.switches, host.name == WorkerName("b1") ? "other.leaf7" : "spine.leaf1");
}

TEST(Network, OthersReservedNodesAreTakenLastEvenIfTheyAreNear) {
  std::vector<Host> all = racks(2, 2);
  all[1].held = true;  // r0n1
  const PlacementRequest request = request_for(all, {"r0n0"});
  EXPECT_THAT(placed(request, 1, without(all, {"r0n0"})), ElementsAre("r1n0"));
  EXPECT_THAT(placed(request, 1, without(all, {"r0n0", "r1n0", "r1n1"})), ElementsAre("r0n1"));
}

TEST(Network, AJobGrowsNearItsNodes) {
  const std::vector<Host> all = racks(4, 4);
  PlacementRequest request = request_for(all, {"r3n0", "r3n1"});
  EXPECT_THAT(placed(request, 4, all), ElementsAre("r3n0", "r3n1", "r3n2", "r3n3"));
  request.segment_nodes = 2;
  const std::vector<std::string> grown = placed(request, 4, without(all, {"r3n2"}));
  EXPECT_EQ(grown[0] + grown[1], "r3n0r3n1");
}

TEST(Network, SparesAreSharedByTheDomainsOfTheJob) {
  const std::vector<Host> all = racks(6, 4);
  // Three nodes in rack2, one in rack4.
  const PlacementRequest request = request_for(all, {"r2n0", "r2n1", "r2n2", "r4n0"});
  const auto held = [&](int32_t count, const std::set<std::string>& busy = {},
                        const std::vector<std::string>& own = {}) {
    PlacementRequest some = request;
    for (const std::string& name : own) some.held.emplace_back(name);
    std::vector<std::string> names;
    for (const WorkerName& name : choose_held(some, count, without(all, busy)))
      names.push_back(name.value());
    return names;
  };
  EXPECT_THAT(held(2), ElementsAre("r2n3", "r4n1"));
  EXPECT_THAT(held(2, {"r2n3", "r4n1", "r4n2", "r4n3"}), ElementsAre("r3n0", "r3n1"))
      << "below the leaf of the most nodes";
  EXPECT_THAT(held(2, {}, {"r0n0"}), ElementsAre("r0n0", "r2n3")) << "reserved nodes stay";
  EXPECT_EQ(held(100).size(), all.size() - 4);
}

// 16,384 ranks on 2,048 nodes in racks of 18, with random nodes in use and lost. Compares with
// properties, not with another implementation.
TEST(Network, LargeJobsStayTogetherWhateverIsLost) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 4; ++round) {
    std::vector<Host> hosts = racks(160, 18);
    std::erase_if(hosts, [&](const Host&) { return random() % 20 == 0; });
    PlacementRequest fresh;
    fresh.segment_nodes = 8;
    const std::vector<std::string> before = placed(fresh, 2048, hosts);
    ASSERT_EQ(before.size(), 2048U);
    std::map<std::string, std::string> rack_of;
    for (const Host& host : hosts) rack_of[host.name.value()] = host.domain;
    for (size_t i = 0; i < before.size(); ++i)
      ASSERT_EQ(rack_of[before[i]], rack_of[before[i / 8 * 8]]) << "a segment has one domain";

    std::set<std::string> lost;
    while (lost.size() < 40) lost.insert(before[random() % before.size()]);
    PlacementRequest again = request_for(hosts, before);
    again.segment_nodes = 8;
    const std::vector<Host> left = without(hosts, lost);
    std::map<std::string, int> free_of;
    for (const Host& host : left)
      if (std::ranges::find(before, host.name.value()) == before.end()) ++free_of[host.domain];
    const std::vector<std::string> after = placed(again, 2048, left);
    std::set<std::string> used;
    for (size_t i = 0; i < before.size(); ++i) {
      ASSERT_TRUE(used.insert(after[i]).second);
      if (!lost.contains(before[i])) {
        ASSERT_EQ(after[i], before[i]);
        continue;
      }
      const bool is_near = rack_of[after[i]] == rack_of[before[i]];
      ASSERT_EQ(is_near, free_of[rack_of[before[i]]]-- > 0) << before[i] << " → " << after[i];
    }
  }
}

}  // namespace
}  // namespace muster::coordinator

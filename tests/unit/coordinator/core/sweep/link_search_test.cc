// The search for bad nodes and links, on networks that are made up.
#include "coordinator/core/sweep/link_search.h"

#include <algorithm>
#include <bit>
#include <random>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

struct Network {
  std::set<NodeIndex> bad_nodes{};
  std::set<std::pair<NodeIndex, NodeIndex>> bad_links{};  // the lower node first
  bool fails = true;                                      // or the all-reduce is slow
  bool wrong = false;                                     // or its sum is wrong
  double noise = 0;  // the chance that a test is bad without a cause
  std::set<NodeIndex> void_nodes{};

  bool is_bad(const NodeGroup& group) const {
    for (const NodeIndex a : group) {
      if (bad_nodes.contains(a)) return true;
      for (const NodeIndex b : group)
        if (bad_links.contains({a, b})) return true;
    }
    return false;
  }
};

class LinkSearchTest : public testing::Test {
 protected:
  // Runs the search to its end and counts the rounds and the nodes of all tests.
  std::vector<LinkFinding> run(const Network& network, LinkSearch& search) {
    rounds = 0;
    tested = 0;
    while (true) {
      const std::vector<NodeGroup> round = search.next_round();
      if (round.empty()) return search.findings();
      ++rounds;
      std::set<NodeIndex> used;
      std::vector<GroupResult> results;
      for (const NodeGroup& group : round) {
        EXPECT_GT(group.size(), 1U);
        tested += group.size();
        for (const NodeIndex node : group)
          EXPECT_TRUE(used.insert(node).second) << "node " << node << " is in two tests";
        results.push_back(test(network, group));
      }
      search.take(results);
    }
  }
  std::vector<LinkFinding> run(const Network& network, int32_t nodes, int32_t ring_max = 4096) {
    LinkSearch search(nodes, ring_max, 0);
    std::vector<LinkFinding> findings = run(network, search);
    unexplained = search.unexplained();
    return findings;
  }
  GroupResult test(const Network& network, const NodeGroup& group) {
    GroupResult result;
    for (const NodeIndex node : group)
      if (network.void_nodes.contains(node)) result.gone.insert(node);
    result.is_void = !result.gone.empty();
    if (result.is_void) return result;
    std::uniform_real_distribution<double> part(0, 1);
    const bool is_bad = network.is_bad(group) || part(random) < network.noise;
    result.gb_s = (is_bad ? 0.1 : 10) * (0.9 + 0.2 * part(random));
    if (is_bad && network.fails) result.failure = "no answer";
    result.wrong = is_bad && network.wrong;
    return result;
  }
  // A search needs a few tests of pairs, and at most so many rounds for each halving.
  static int rounds_max(int32_t nodes) {
    return 10 + 5 * static_cast<int>(std::bit_width(static_cast<uint32_t>(nodes)));
  }

  std::mt19937 random{7};
  int rounds = 0;
  size_t tested = 0;
  int unexplained = 0;
};

TEST_F(LinkSearchTest, HealthyNodesNeedThePairsAndOneRing) {
  for (const int32_t nodes : {0, 1, 2, 3, 4, 7, 64}) {
    EXPECT_TRUE(run({}, nodes).empty()) << nodes;
    EXPECT_LE(rounds, nodes == 3 ? 4 : 3) << nodes;
  }
}

TEST_F(LinkSearchTest, ABadNodeIsFoundByItsPair) {
  for (const bool fails : {true, false}) {
    for (const NodeIndex bad : {0, 3, 8}) {
      const auto found = run({.bad_nodes = {bad}, .fails = fails}, 9);
      ASSERT_EQ(found.size(), 1U);
      EXPECT_EQ(found[0].node, bad);
      EXPECT_EQ(found[0].peer, -1);
      EXPECT_EQ(found[0].excludes, fails) << "slow links are reported only";
      EXPECT_NE(found[0].what.find(fails ? "no answer" : "GB/s instead of"), std::string::npos)
          << found[0].what;
    }
  }
}

TEST_F(LinkSearchTest, ABadLinkIsFoundByHalvesAndCrossings) {
  const auto near = run({.bad_links = {{2, 3}}}, 16);
  ASSERT_EQ(near.size(), 1U);
  EXPECT_EQ(std::pair(near[0].node, near[0].peer), std::pair(2, 3));
  EXPECT_TRUE(near[0].is_narrow);
  const auto far = run({.bad_links = {{1, 14}}}, 16);
  ASSERT_EQ(far.size(), 1U);
  EXPECT_EQ(std::pair(far[0].node, far[0].peer), std::pair(1, 14));
}

TEST_F(LinkSearchTest, TwoNodesCannotShowWhichOneIsBad) {
  const auto found = run({.bad_nodes = {1}}, 2);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(std::pair(found[0].node, found[0].peer), std::pair(0, 1));
  EXPECT_FALSE(found[0].is_narrow);
}

TEST_F(LinkSearchTest, ATestWhoseNodeIsNeededShowsNothing) {
  EXPECT_TRUE(run({.void_nodes = {0, 5}}, 8).empty());
  const auto found = run({.bad_nodes = {3}, .void_nodes = {0, 5}}, 8);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].node, 3);
  EXPECT_TRUE(run({.bad_nodes = {3}, .void_nodes = {3}}, 8).empty());
}

TEST_F(LinkSearchTest, ABadNodeOfThreeIsFound) {
  for (const NodeIndex bad : {0, 1, 2}) {
    const auto found = run({.bad_nodes = {bad}}, 3);
    ASSERT_EQ(found.size(), 1U) << bad;
    EXPECT_EQ(std::pair(found[0].node, found[0].peer), std::pair(bad, -1));
    EXPECT_FALSE(found[0].excludes) << "it has two others only";
  }
}

TEST_F(LinkSearchTest, PartnersOfANodeThatIsExcludedDiffer) {
  for (int32_t nodes = 3; nodes < 12; ++nodes) {
    LinkSearch search(nodes, 64, 0);
    std::set<NodeIndex> failed_with;
    for (std::vector<NodeGroup> round = search.next_round(); !round.empty();
         round = search.next_round()) {
      std::vector<GroupResult> results;
      for (const NodeGroup& group : round) {
        results.push_back(test({.bad_nodes = {1}}, group));
        if (group.size() == 2 && group[0] == 1) failed_with.insert(group[1]);
      }
      search.take(results);
    }
    ASSERT_EQ(search.findings().size(), 1U) << nodes;
    EXPECT_EQ(search.findings()[0].node, 1);
    EXPECT_EQ(search.findings()[0].excludes, nodes >= 5) << nodes;
    EXPECT_EQ(failed_with.size(), nodes >= 5 ? 3U : 2U) << nodes;
  }
}

TEST_F(LinkSearchTest, AWrongSumIsDividedWithoutARepetition) {
  LinkSearch search(16, 64, 0);
  const Network network{.bad_links = {{1, 14}}, .wrong = true};
  int rings = 0;
  for (std::vector<NodeGroup> round = search.next_round(); !round.empty();
       round = search.next_round()) {
    std::vector<GroupResult> results;
    for (const NodeGroup& group : round) {
      results.push_back(test(network, group));
      rings += group.size() == 16;
    }
    search.take(results);
  }
  EXPECT_EQ(rings, 1);
  ASSERT_EQ(search.findings().size(), 1U);
  EXPECT_EQ(std::pair(search.findings()[0].node, search.findings()[0].peer), std::pair(1, 14));
  ASSERT_GE(search.wrong_sums().size(), 2U);
  EXPECT_EQ(search.wrong_sums().front().nodes.size(), 16U);
  EXPECT_EQ(search.wrong_sums().back().nodes, (NodeGroup{1, 14}));
}

TEST_F(LinkSearchTest, AWrongSumOfATestThatAJobEndsIsReported) {
  LinkSearch search(2, 64, 0);
  ASSERT_EQ(search.next_round().size(), 1U);
  search.take({{.is_void = true, .gone = {0}, .failure = "3 sums are wrong", .wrong = true}});
  EXPECT_TRUE(search.next_round().empty());
  ASSERT_EQ(search.wrong_sums().size(), 1U);
  EXPECT_EQ(search.wrong_sums()[0].nodes, (NodeGroup{0, 1}));
}

// A job ends one test of the ring: the ring is not good because of that.
TEST_F(LinkSearchTest, ARingThatWasEndedIsRepeated) {
  LinkSearch search(8, 128, 0);
  const Network network{.bad_links = {{1, 6}}};
  bool is_ended = false;
  for (std::vector<NodeGroup> round = search.next_round(); !round.empty();
       round = search.next_round()) {
    std::vector<GroupResult> results;
    for (const NodeGroup& group : round) {
      results.push_back(test(network, group));
      if (group.size() == 8) {
        results.back() = {.is_void = true, .gone = {3}};
        is_ended = true;
      }
    }
    search.take(results);
  }
  EXPECT_TRUE(is_ended);
  ASSERT_EQ(search.findings().size(), 1U);
  EXPECT_EQ(std::pair(search.findings()[0].node, search.findings()[0].peer), std::pair(1, 6));
}

TEST_F(LinkSearchTest, TheLossOfTheCauseLeavesNothingUnexplained) {
  LinkSearch search(8, 128, 0);
  const Network network{.bad_nodes = {3}};
  int ring_tests = 0;
  for (std::vector<NodeGroup> round = search.next_round(); !round.empty();
       round = search.next_round()) {
    std::vector<GroupResult> results;
    for (const NodeGroup& group : round) {
      const bool has_bad = std::ranges::find(group, 3) != group.end();
      results.push_back(test(group.size() == 8 ? network : Network{}, group));
      ring_tests += group.size() == 8 ? 1 : 0;
      if (has_bad && ring_tests == 2 && group.size() < 8)
        results.back() = {.is_void = true, .gone = {3}};
    }
    search.take(results);
  }
  EXPECT_EQ(ring_tests, 2);
  EXPECT_TRUE(search.findings().empty());
  EXPECT_EQ(search.unexplained(), 0);
}

TEST_F(LinkSearchTest, SoManyBadPairsHaveACommonCause) {
  Network network;
  for (NodeIndex node = 0; node < 200; node += 2) network.bad_nodes.insert(node);
  LinkSearch search(200, 64, 0);
  EXPECT_TRUE(run(network, search).empty());
  EXPECT_LE(rounds, 3);
  ASSERT_TRUE(search.common_fault());
  EXPECT_EQ(search.common_fault()->pairs, 100U);
  EXPECT_EQ(std::pair(search.common_fault()->node, search.common_fault()->peer), std::pair(0, 1));
}

// All links between the halves of a ring are bad: the search is bounded.
TEST_F(LinkSearchTest, ABrokenConnectionOfTwoHalvesIsBounded) {
  Network network;
  for (NodeIndex a = 0; a < 32; ++a)
    for (NodeIndex b = 32; b < 64; ++b) network.bad_links.insert({a, b});
  LinkSearch search(64, 64, 0);
  EXPECT_TRUE(run(network, search).empty());
  EXPECT_TRUE(search.common_fault() || search.unexplained() > 0);
  EXPECT_LE(rounds, 200);
}

TEST_F(LinkSearchTest, AReferenceJudgesTheOnlyPair) {
  LinkSearch search(2, 128, 100);
  const auto found = run({}, search);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_FALSE(found[0].is_narrow);
}

TEST_F(LinkSearchTest, RingsAreBounded) {
  LinkSearch search(100, 16, 0);
  for (std::vector<NodeGroup> round = search.next_round(); !round.empty();
       round = search.next_round()) {
    std::vector<GroupResult> results;
    for (const NodeGroup& group : round) {
      EXPECT_LE(group.size(), 16U);
      results.push_back(test({}, group));
    }
    search.take(results);
  }
}

// Random faults among up to 1,024 nodes are found in O(log n) rounds, and nothing else is.
TEST_F(LinkSearchTest, RandomFaultsAreFoundInFewRounds) {
  for (int i = 0; i < 200; ++i) {
    const auto nodes = static_cast<int32_t>(3 + random() % 1022);
    const auto a = static_cast<NodeIndex>(random() % static_cast<uint32_t>(nodes));
    const auto b =
        static_cast<NodeIndex>((a + 1 + random() % static_cast<uint32_t>(nodes - 1)) % nodes);
    Network network{.fails = i % 2 == 0, .noise = 0.01};
    const bool is_link = i % 4 < 2 && nodes > 3;
    if (is_link)
      network.bad_links = {std::minmax(a, b)};
    else
      network.bad_nodes = {a};
    // Whether a large ring is slow because of one link depends on noise, too.
    const auto found = run(network, nodes);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << nodes << " nodes, " << a << " and "
                                    << b << (is_link ? ", link" : ", node"));
    ASSERT_EQ(found.size(), 1U);
    if (is_link) {
      EXPECT_EQ(std::pair(found[0].node, found[0].peer),
                (std::pair<NodeIndex, NodeIndex>(std::minmax(a, b))));
    } else {
      EXPECT_EQ(std::pair(found[0].node, found[0].peer), std::pair(a, -1));
    }
    EXPECT_LE(rounds, rounds_max(nodes));
  }
}

// The seats of all tests are in proportion to the nodes, each of which is in a pair and a ring.
TEST_F(LinkSearchTest, ALargeFleetIsSearched) {
  Network network{.bad_links = {{5'010, 5'040}}};
  for (NodeIndex node = 100; node < 12'500; node += 1'000) network.bad_nodes.insert(node);
  const auto found = run(network, 12'500, 64);
  EXPECT_EQ(found.size(), network.bad_nodes.size() + 1);
  EXPECT_LE(rounds, rounds_max(64));
  EXPECT_GE(tested, 2U * 12'450);
  EXPECT_LE(tested, 2U * 12'500 + 1'000);
}

TEST_F(LinkSearchTest, SeveralBadNodesAreFoundAtOnce) {
  Network network{.fails = false};
  for (int i = 0; i < 20; ++i) network.bad_nodes.insert(static_cast<NodeIndex>(random() % 512));
  const auto found = run(network, 512);
  std::set<NodeIndex> nodes;
  for (const LinkFinding& finding : found) {
    EXPECT_EQ(finding.peer, -1);
    nodes.insert(finding.node);
  }
  EXPECT_EQ(nodes, network.bad_nodes);
  EXPECT_LE(rounds, rounds_max(512));
}

TEST_F(LinkSearchTest, NoiseLeadsToNoFinding) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(run({.fails = false, .noise = 0.03}, 256, 64).empty());
    EXPECT_LE(rounds, 2 * rounds_max(256));
  }
}

}  // namespace
}  // namespace muster::coordinator

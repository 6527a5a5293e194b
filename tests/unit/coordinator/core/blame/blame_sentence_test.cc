// Sentences of blame in small hand-written worlds, and for contradictory evidence.
#include <random>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/core/blame/blame.h"
#include "tests/unit/coordinator/core/blame/blame_world.h"

namespace muster::coordinator {
namespace {

GroupEvidence group(const char* name, uint32_t members, uint32_t id, uint64_t started,
                    uint64_t completed, const char* collective,
                    CollectiveKind kind = CollectiveKind::kAllReduce, uint64_t bytes = 4096) {
  GroupEvidence group;
  group.name = name;
  group.members = members;
  group.id = id;
  group.enqueued = group.started = started;
  group.completed = completed;
  group.kind = kind;
  group.bytes = bytes;
  group.collective = collective;
  if (group.waits()) group.age = std::chrono::milliseconds(12'340);
  return group;
}

TEST(BlameSentence, NamesRankNodeCollectiveGroupAndTheWaitingRanks) {
  World world(8);
  world.all_show(group("fsdp", 8, 0, 41, 40, "layer 3 mlp all-gather"), {5});
  world.rank(5).groups = {group("fsdp", 8, 0, 40, 40, "layer 3 attention all-gather")};
  world.rank(5).process_state = 'T';
  const Blame blame = world.blame();
  EXPECT_EQ(blame.sentence,
            "rank 5 on node3 holds up 7 ranks: it never entered all-reduce 41 \"layer 3 mlp "
            "all-gather\" of fsdp, in "
            "which ranks 0-4,6-7 wait (12.3 s); it is stopped (SIGSTOP)");
  EXPECT_EQ(blame.shape, HangShape::kHalted);
  EXPECT_EQ(blame.victims.text(), "0-4,6-7");
  ASSERT_EQ(blame.suspects.size(), 2U);
  EXPECT_EQ(blame.suspects[0].worker.value(), "node3");
  EXPECT_EQ(blame.suspects[0].axis, "fsdp");
  EXPECT_EQ(blame.suspects[0].collective, "layer 3 mlp all-gather");
  EXPECT_GT(blame.suspects[0].confidence, 0.9);
  EXPECT_LT(blame.suspects[1].confidence, 0.05);
}

// Ranks with devices enqueue collectives ahead of their execution. The page shows the collective
// that the device executes.
TEST(BlameSentence, NamesWhatDevicesStandIn) {
  World world(8);
  GroupEvidence shown = group("tensor nccl", 8, 0, 41, 40, "layer 3 mlp in all-gather");
  shown.enqueued = 47;
  shown.called = 41;
  world.all_show(shown, {5});
  world.rank(5).groups = {group("tensor nccl", 8, 0, 40, 40, "layer 3 attention out")};
  EXPECT_EQ(world.blame().sentence,
            "rank 5 on node3 holds up 7 ranks: it never entered all-reduce 41 \"layer 3 mlp in "
            "all-gather\" of tensor nccl, in which ranks 0-4,6-7 wait (12.3 s)");
}

TEST(BlameSentence, FollowsAChainToItsEnd) {
  // 0 waits for 1 in "tensor", 1 for 3 in "data", 2 for 3 in "tensor".
  World world(4);
  world.rank(0).groups = {group("tensor", 2, 0, 7, 6, "a"), group("data", 2, 0, 2, 2, "b")};
  world.rank(1).groups = {group("tensor", 2, 0, 6, 6, "z"), group("data", 2, 1, 3, 2, "b")};
  world.rank(2).groups = {group("tensor", 2, 2, 7, 6, "a"), group("data", 2, 0, 2, 2, "b")};
  world.rank(3).groups = {group("tensor", 2, 2, 6, 6, "z"), group("data", 2, 1, 2, 2, "b")};
  world.rank(3).phase = Phase::kData;
  world.rank(3).phase_age = std::chrono::seconds(43);
  const Blame blame = world.blame();
  EXPECT_EQ(blame.suspects[0].rank.value(), 3);
  EXPECT_EQ(blame.victims.text(), "0-2");
  EXPECT_EQ(blame.shape, HangShape::kBehind);
  EXPECT_NE(blame.sentence.find("it is in DATA for 43.0 s"), std::string::npos) << blame.sentence;
}

TEST(BlameSentence, TwoFaultsAreBothInIt) {
  World world(6);
  for (int32_t rank = 0; rank < 6; ++rank) {
    const auto id = static_cast<uint32_t>(rank / 3 * 3);
    const bool stands = rank == 1 || rank == 5;
    world.rank(rank).groups = {group("data", 3, id, stands ? 8 : 9, 8, "gradients")};
  }
  world.rank(1).process_state = 't';
  world.rank(1).tracer_pid = 17;
  world.rank(5).process_state = 'Z';
  const Blame blame = world.blame();
  EXPECT_EQ(blame.sentence,
            "rank 1 on node1 holds up 2 ranks: it never entered all-reduce 9 \"gradients\" of "
            "data, in which ranks "
            "0,2 wait (12.3 s); it is held by a debugger (pid 17). As likely, or besides: rank 5 "
            "on node3 holds up 2 "
            "ranks: it never entered all-reduce 9 \"gradients\" of data, in which ranks 3-4 wait "
            "(12.3 s); it has "
            "ended (a zombie)");
  EXPECT_NEAR(blame.suspects[0].confidence, blame.suspects[1].confidence, 1e-9);
  EXPECT_GT(blame.suspects[1].confidence, 0.45);
}

TEST(BlameSentence, AMemberOfAnotherMindIsNamed) {
  World world(4);
  world.all_show(group("data", 4, 0, 9, 8, "gradients"), {2});
  world.rank(2).groups = {group("data", 4, 0, 9, 8, "norm", CollectiveKind::kAllGather, 8)};
  const Blame blame = world.blame();
  EXPECT_EQ(blame.shape, HangShape::kMismatch);
  EXPECT_EQ(blame.sentence,
            "rank 2 on node2: it entered all-gather \"norm\" of 8 bytes as number 9 of data, where "
            "ranks 0-1,3 "
            "entered all-reduce \"gradients\" of 4,096 bytes");
}

TEST(BlameSentence, TwoRanksThatDisagreeShareTheBlame) {
  World world(2);
  world.rank(0).groups = {group("data", 2, 0, 9, 8, "gradients")};
  world.rank(1).groups = {group("data", 2, 0, 9, 8, "gradients", CollectiveKind::kAllReduce, 8)};
  const Blame blame = world.blame();
  EXPECT_EQ(blame.shape, HangShape::kMismatch);
  ASSERT_EQ(blame.suspects.size(), 2U);
  EXPECT_EQ(blame.suspects[0].confidence, blame.suspects[1].confidence);
  EXPECT_EQ(blame.suspects[0].confidence, 0.45);
}

TEST(BlameSentence, BytesOfAnAllToAllMayDiffer) {
  World world(2);
  world.rank(0).groups = {group("expert", 2, 0, 9, 8, "tokens", CollectiveKind::kAllToAll, 100)};
  world.rank(1).groups = {group("expert", 2, 0, 9, 8, "tokens", CollectiveKind::kAllToAll, 50)};
  EXPECT_EQ(world.blame().shape, HangShape::kTransport);
}

TEST(BlameSentence, ACircleNamesItsEdges) {
  // 0-1 wait in "data" for 2-3, which wait in "fsdp" for 0-1.
  World world(4);
  for (const int32_t rank : {0, 1})
    world.rank(rank).groups = {group("data", 4, 0, 9, 8, "gradients"),
                               group("fsdp", 4, 0, 5, 5, "z")};
  for (const int32_t rank : {2, 3})
    world.rank(rank).groups = {group("data", 4, 0, 8, 8, "z"),
                               group("fsdp", 4, 0, 6, 5, "weights")};
  const Blame blame = world.blame();
  EXPECT_EQ(blame.shape, HangShape::kDeadlock);
  EXPECT_EQ(blame.suspects.size(), 4U);
  EXPECT_EQ(blame.suspects[0].why,
            "waits in all-reduce 9 \"gradients\" of data for ranks 2-3, while ranks 2-3 wait (12.3 "
            "s) for it in "
            "all-reduce 6 \"weights\" of fsdp");
  EXPECT_TRUE(blame.sentence.starts_with("deadlock: rank 0 on node1 ")) << blame.sentence;
}

TEST(BlameSentence, AMissingRankIsFoundByThePositionsOfOtherGroups) {
  World world(8);  // pairs that are 4 apart
  for (const int32_t rank : {0, 1, 3, 4, 5, 6, 7}) {
    const auto id = static_cast<uint32_t>(rank % 4);
    const bool waits = rank == 6;
    world.rank(rank).groups = {group("data", 2, id, 1, waits ? 0 : 1, "first")};
  }
  world.rank(2).phase = Phase::kInit;
  const Blame blame = world.blame();
  EXPECT_EQ(blame.shape, HangShape::kNeverJoined);
  EXPECT_EQ(blame.suspects[0].rank.value(), 2);
  EXPECT_EQ(blame.suspects[0].why,
            "never joined the group of all-reduce 1 \"first\" of data, in which rank 6 waits (12.3 "
            "s); it is in "
            "INIT for 0.0 s");
}

TEST(BlameSentence, RanksThatMayBeMissingShareTheSuspicion) {
  World world(4);  // ids are hashes: one of 1-3 is missing in a group of two
  world.rank(0).groups = {group("comm", 2, 0xdeadbeef, 1, 0, "first")};
  const Blame blame = world.blame();
  ASSERT_EQ(blame.suspects.size(), 3U);
  for (const Suspect& suspect : blame.suspects) {
    EXPECT_NE(suspect.rank.value(), 0);
    EXPECT_NEAR(suspect.confidence, 0.3, 0.01);
  }
}

TEST(BlameSentence, ACutLinkIsTheFirstSuspectAndReplacesTheTransport) {
  World world(4);
  world.all_show(group("data", 4, 0, 9, 8, "gradients"));
  world.input.cut_link = "nodes node1 and node2 cannot reach each other: rank 1 …";
  const Blame blame = world.blame();
  EXPECT_EQ(blame.shape, HangShape::kTransport);
  EXPECT_TRUE(blame.sentence.starts_with("nodes node1 and node2 cannot reach each other: rank 1"));
  ASSERT_GE(blame.suspects.size(), 2U);
  EXPECT_EQ(blame.suspects[0].rank, Rank(-1));
  EXPECT_DOUBLE_EQ(blame.suspects[0].confidence, 0.9);
  double rest = 0;
  for (size_t i = 1; i < blame.suspects.size(); ++i) {
    EXPECT_NE(blame.suspects[i].rank, Rank(-1));
    rest += blame.suspects[i].confidence;
  }
  EXPECT_LE(rest, 0.1);
  EXPECT_TRUE(blame.is_cut_link);
}

TEST(BlameSentence, ACutLinkReplacesNoCertainCause) {
  World stopped(4);
  stopped.all_show(group("data", 4, 0, 9, 8, "gradients"));
  stopped.rank(2).process_state = 'T';
  stopped.input.cut_link = "nodes node1 and node2 cannot reach each other";
  const Blame blame = stopped.blame();
  EXPECT_FALSE(blame.is_cut_link);
  EXPECT_EQ(blame.suspects[0].rank, Rank(2)) << blame.sentence;
  World mismatch(4);
  mismatch.all_show(group("data", 4, 0, 9, 8, "gradients"), {2});
  mismatch.rank(2).groups = {group("data", 4, 0, 9, 8, "loss")};
  mismatch.input.cut_link = stopped.input.cut_link;
  EXPECT_EQ(mismatch.blame().shape, HangShape::kMismatch) << mismatch.blame().sentence;
  EXPECT_FALSE(mismatch.blame().is_cut_link);
}

TEST(BlameSentence, WhereAllAreInsideTheTransportIsLikeliest) {
  World world(4);
  world.all_show(group("data", 4, 0, 9, 8, "gradients"));
  const Blame blame = world.blame();
  EXPECT_EQ(blame.shape, HangShape::kTransport);
  EXPECT_EQ(blame.sentence,
            "no single rank stands out: all 4 members are in all-reduce 9 \"gradients\" of data "
            "(12.3 s) and nothing "
            "moves between them; the network or the transport is the likeliest cause");
  EXPECT_EQ(blame.suspects[0].rank.value(), -1);
  EXPECT_EQ(blame.suspects.size(), 5U);
}

TEST(BlameSentence, AWorkerThatDoesNotAnswer) {
  World world(4);
  world.all_show(group("data", 4, 0, 9, 8, "gradients"));
  world.input.later.ranks.erase(world.input.later.ranks.begin() + 2, world.input.later.ranks.end());
  for (const int32_t rank : {2, 3})
    world.input.gone[Rank(rank)] = "is on a worker that does not answer";
  const Blame blame = world.blame();
  EXPECT_EQ(blame.shape, HangShape::kHalted);
  EXPECT_EQ(blame.suspects[0].rank.value(), 2);
  EXPECT_EQ(blame.suspects[1].rank.value(), 3);
  EXPECT_NE(blame.sentence.find("it is on a worker that does not answer"), std::string::npos)
      << blame.sentence;
}

TEST(BlameSentence, WithoutCollectivesPhasesThenStepsThenStacksDecide) {
  World world(4);
  world.rank(2).phase = Phase::kLoad;
  world.rank(2).phase_age = std::chrono::seconds(200);
  for (const int32_t rank : {0, 1, 3}) world.rank(rank).phase = Phase::kRendezvous;
  EXPECT_EQ(world.blame().sentence,
            "rank 2 on node2: it is not in RENDEZVOUS as most others are; it is in LOAD for 3 min");

  World steps(4);
  steps.rank(1).step = 3;
  EXPECT_EQ(steps.blame().sentence,
            "rank 1 on node1: it has completed 3 steps where others have 4");

  World stacks(4);
  StackSample sample;
  for (int32_t rank = 0; rank < 4; ++rank) {
    RankStacks one;
    one.rank = rank;
    one.threads.emplace_back();
    one.threads[0].name = "main";
    for (const char* text : {"run", rank == 3 ? "sleep" : "wait"}) {
      one.threads[0].frames.emplace_back();
      one.threads[0].frames.back().text = text;
    }
    sample.ranks.push_back(one);
  }
  stacks.input.later.stacks.add(sample);
  const Blame blame = stacks.blame();
  EXPECT_EQ(blame.shape, HangShape::kUnclear);
  EXPECT_EQ(blame.sentence,
            "rank 3 on node2: it stands elsewhere than the others; it stands at sleep");

  const Blame nothing = World(2).blame();
  EXPECT_EQ(nothing.suspects.size(), 2U);
  EXPECT_LT(nothing.suspects[0].confidence, 0.2);
  EXPECT_EQ(World(0).blame().sentence, "nothing is known of this job's ranks");
}

TEST(BlameSentence, NamesThePositionInTheKernelAndWhetherItMakesProgress) {
  World world(4);
  world.all_show(group("data", 4, 0, 9, 8, "gradients"), {3});
  world.rank(3).groups = {group("data", 4, 0, 8, 8, "z")};
  world.rank(3).process_state = 'D';
  world.rank(3).wait_channel = "ext4_sync_file\x1b[2J";
  world.rank(3).memory = {(uint64_t{16} << 30) - 1, uint64_t{16} << 30};
  world.input.earlier.ranks = world.input.later.ranks;
  world.input.earlier.ranks[3].groups[0].completed = 7;
  const Blame blame = world.blame();
  EXPECT_NE(blame.sentence.find("it cannot be woken in the kernel (D state, in "
                                "ext4_sync_file\\x1b[2J); it is at the memory limit of its control "
                                "group (16.0 of 16.0 GiB); it makes progress, slowly"),
            std::string::npos)
      << blame.sentence;
}

// Some rank is named, in bounded and printable text, whatever pages contain.
TEST(BlameSentence, NonsenseIsNoHarm) {
  std::mt19937_64 random(5);
  const std::vector<std::string> names = {"data",    "data#1",     "a#99999999999999",   "",
                                          "\x1b[2J", "pipeline#3", std::string(500, 'x')};
  for (int round = 0; round < 300; ++round) {
    const auto ranks = static_cast<int32_t>(random() % 6);
    World world(ranks);
    for (uint64_t n = random() % 8; n > 0; --n) {
      RankEvidence evidence;
      evidence.rank = static_cast<int32_t>(random() % 8) - 1;
      evidence.pid = static_cast<int32_t>(random() % 2);
      evidence.phase = static_cast<Phase>(random() % 12);
      evidence.step = static_cast<int64_t>(random());
      evidence.process_state = "RSDTtZX?\x01"[random() % 9];
      for (uint64_t g = random() % 5; g > 0; --g) {
        GroupEvidence group;
        group.name = names[random() % names.size()];
        group.members = static_cast<uint32_t>(random() % 3 == 0 ? random() : random() % 5);
        group.id = static_cast<uint32_t>(random() % 3 == 0 ? random() : random() % 5);
        group.enqueued = random() % 7 == 0 ? ~0ULL : random() % 4;
        group.started = random() % 7 == 0 ? ~0ULL : random() % 4;
        group.completed = random() % 7 == 0 ? ~0ULL : random() % 4;
        group.kind = static_cast<CollectiveKind>(random() % 12);
        group.bytes = random();
        group.collective = names[random() % names.size()];
        group.age = Duration(static_cast<int64_t>(random()) / 4);
        evidence.groups.push_back(group);
      }
      (random() % 2 == 0 ? world.input.later : world.input.earlier).ranks.push_back(evidence);
    }
    world.input.gone[Rank(static_cast<int32_t>(random() % 9) - 2)] = "was killed";
    const Blame found = coordinator::blame(world.input);
    EXPECT_LE(found.sentence.size(), kSentenceBytesMax);
    EXPECT_EQ(found.sentence.find('\x1b'), std::string::npos);
    EXPECT_GE(found.suspects.size(), std::min<size_t>(2, static_cast<size_t>(ranks)));
    for (const Suspect& suspect : found.suspects) EXPECT_LT(suspect.rank.value(), ranks);
  }
}

}  // namespace
}  // namespace muster::coordinator

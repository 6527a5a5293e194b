#include "common/stacks/stack_tree.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gtest/gtest.h>

#include "common/stacks/stack_forest.h"

namespace muster {
namespace {

// A tree's content independent of its order: each stack's ranks. A stack is the texts of its thread
// and frames, which are unique in these tests.
using Canonical = std::map<std::vector<std::string>, std::set<int32_t>>;

Canonical canonical(const StackTree& tree) {
  Canonical all;
  for (const StackTree::Class& found : tree.classes("")) {
    std::vector<std::string> stack = {found.thread};
    for (const uint32_t frame : found.frames) stack.push_back(tree.frame_text(frame));
    std::set<int32_t>& ranks = all[stack];
    EXPECT_TRUE(ranks.empty()) << "two classes of one stack: " << absl::StrJoin(stack, " > ");
    for (const RankSet::Range& range : found.ranks.ranges())
      for (int32_t rank = range.first; rank <= range.last; ++rank) ranks.insert(rank);
  }
  return all;
}

StackFrame text_frame(std::string text) { return {.text = std::move(text)}; }

// Returns a sample with few modules and frames, so that stacks share beginnings and coincide;
// module indices differ between samples.
StackSample random_sample(std::mt19937& random, int32_t first_rank, int32_t ranks) {
  StackSample sample;
  std::vector<std::string> paths = {"/lib/libc.so.6", "/bin/trainer", "/lib/libgloo.so"};
  std::shuffle(paths.begin(), paths.end(), random);
  for (const std::string& path : paths)
    sample.modules.push_back(
        {.build_id = path == "/bin/trainer" ? "" : absl::StrCat("id", path.substr(4)),
         .path = path});
  for (int32_t rank = first_rank; rank < first_rank + ranks; ++rank) {
    RankStacks stacks{.rank = rank, .pid = 100 + rank, .problem = {}, .threads = {}, .note = {}};
    for (unsigned t = random() % 4; t > 0; --t) {
      ThreadStack thread{.tid = 1, .name = random() % 2 == 0 ? "main" : "loader", .frames = {}};
      for (unsigned depth = random() % 6; depth > 0; --depth) {
        if (random() % 5 == 0) {
          thread.frames.push_back(text_frame(absl::StrCat("train.py:", random() % 2)));
        } else {
          thread.frames.push_back({.module = static_cast<uint32_t>(random() % 3),
                                   .address = 0x10 * (random() % 3),
                                   .text = {}});
        }
      }
      stacks.threads.push_back(std::move(thread));
    }
    sample.ranks.push_back(std::move(stacks));
  }
  return sample;
}

void add_to(Canonical& all, const StackSample& sample) {
  for (const RankStacks& rank : sample.ranks) {
    for (const ThreadStack& thread : rank.threads) {
      std::vector<std::string> stack = {thread.name};
      for (const StackFrame& frame : thread.frames) {
        const std::string& path =
            frame.module == kNoModule ? "" : sample.modules[frame.module].path;
        stack.push_back(frame.module == kNoModule ? frame.text
                                                  : absl::StrCat(path.substr(path.rfind('/') + 1),
                                                                 "+0x", absl::Hex(frame.address)));
      }
      all[stack].insert(rank.rank);
    }
  }
}

TEST(StackTree, ClassesReproduceTheStacksInAnyOrderOfMerging) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    Canonical expected;
    std::vector<StackTree> trees(1 + random() % 9);
    for (size_t i = 0; i < trees.size(); ++i) {
      const StackSample sample = random_sample(random, static_cast<int32_t>(random() % 20), 4);
      trees[i].add(sample);
      add_to(expected, sample);
    }
    StackTree forward, backward, nested;
    StackForest forest;
    for (const StackTree& tree : trees) forest.add(tree);
    StackTree total = forest.total();
    for (const StackTree& tree : trees) forward.merge(tree);
    for (size_t i = trees.size(); i-- > 0;) backward.merge(trees[i]);
    for (size_t i = trees.size(); i-- > 0;) {
      StackTree rest = trees[i];
      rest.merge(nested);
      nested = rest;
    }
    for (const StackTree* merged : {&forward, &backward, &nested, &total}) {
      EXPECT_EQ(canonical(*merged), expected);
      EXPECT_EQ(merged->dropped(), 0);
      const auto again = StackTree::of(merged->parts());
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(canonical(*again), expected);
    }
    StackTree twice = forward;
    twice.merge(backward);
    twice.merge(twice);
    EXPECT_EQ(twice, forward);  // no change, not even a new node
  }
}

TEST(StackTree, PassingIncludesAllRanksWhoseStacksEndBelow) {
  std::mt19937 random(3);
  StackTree tree;
  tree.add(random_sample(random, 0, 40));
  const auto passing = tree.passing();
  std::map<std::string, std::set<int32_t>> by_thread;
  for (const auto& [stack, ranks] : canonical(tree))
    by_thread[stack[0]].insert(ranks.begin(), ranks.end());
  for (size_t i = 0; i < tree.nodes().size(); ++i) {
    const StackTree::Node& node = tree.nodes()[i];
    RankSet expected = node.ends;
    for (size_t j = i + 1; j < tree.nodes().size(); ++j)
      if (tree.nodes()[j].parent == i) expected.add(passing[j]);
    EXPECT_EQ(passing[i], expected);
    if (node.parent == i) {
      EXPECT_EQ(passing[i].size(),
                static_cast<int64_t>(by_thread[tree.frames()[node.frame].text].size()));
    }
  }
}

TEST(StackTree, LargestClassesFirst) {
  StackTree tree;
  StackSample sample;
  for (int32_t rank = 0; rank < 6; ++rank) {
    const char* where = rank == 5 ? "sleep" : rank < 2 ? "poll" : "wait";
    sample.ranks.push_back(
        {.rank = rank,
         .pid = 0,
         .problem = {},
         .threads = {{.name = "main", .frames = {text_frame("run"), text_frame(where)}},
                     {.name = "beside", .frames = {}}},
         .note = {}});
  }
  tree.add(sample);
  std::vector<std::string> printed;
  for (const auto& found : tree.classes())
    printed.push_back(absl::StrCat(found.ranks.text(), " ", tree.frame_text(found.frames.back())));
  EXPECT_EQ(printed, (std::vector<std::string>{"2-4 wait", "0-1 poll", "5 sleep"}));
  ASSERT_EQ(tree.classes("beside").size(), 1U);
  EXPECT_TRUE(tree.classes("beside")[0].frames.empty());
  EXPECT_EQ(tree.classes("beside")[0].ranks.text(), "0-5");
}

StackSample deep_sample(int32_t rank, size_t depth, size_t salt) {
  StackSample sample;
  sample.modules = {{.build_id = "aa", .path = "/bin/x"}};
  ThreadStack thread{.name = "main", .frames = {}};
  for (size_t i = 0; i < depth; ++i)
    thread.frames.push_back({.module = 0, .address = salt * 1000 + i, .text = {}});
  sample.ranks.push_back({.rank = rank, .pid = 0, .problem = {}, .threads = {thread}, .note = {}});
  return sample;
}

TEST(StackTree, AStackWithoutRoomEndsAtItsDeepestNode) {
  StackTree first, second;
  for (int32_t rank = 0; rank < 1000; ++rank)
    (rank < 500 ? first : second).add(deep_sample(rank, kStackDepthMax, static_cast<size_t>(rank)));
  EXPECT_EQ(first.dropped() + second.dropped(), 0);
  first.merge(second);
  EXPECT_EQ(first.nodes().size(), kStackTreeNodesMax);
  EXPECT_EQ(first.frames().size(), kStackTreeNodesMax);
  EXPECT_EQ(first.dropped(), 1000 - static_cast<int64_t>(kStackTreeNodesMax / kStackDepthMax) + 1);
  RankSet all;
  for (const auto& found : first.classes()) all.add(found.ranks);
  EXPECT_EQ(all.text(), "0-999");

  StackTree deep;
  deep.add(deep_sample(0, 1000, 0));  // from a sampler without a bound
  EXPECT_EQ(deep.dropped(), 1);
  EXPECT_LE(deep.classes()[0].frames.size(), kStackDepthMax + 1);
}

TEST(StackTree, SetsOfRanksHaveABoundTogether) {
  std::vector<RankSet::Range> ranges;
  for (int32_t rank = 0; ranges.size() < kStackTreeRangesMax * 2 / 3; rank += 2)
    ranges.push_back({rank, rank});
  const auto tree = StackTree::of({.modules = {},
                                   .frames = {text_frame("main"), text_frame("run")},
                                   .symbols = {},
                                   .nodes = {{0, 0, RankSet::of(ranges)}},
                                   .dropped = 0});
  ASSERT_TRUE(tree.ok()) << tree.status();
  StackTree other = *StackTree::of({.modules = {},
                                    .frames = {text_frame("main"), text_frame("run")},
                                    .symbols = {},
                                    .nodes = {{0, 0, {}}, {0, 1, RankSet::of(ranges)}},
                                    .dropped = 7});
  other.merge(*tree);
  EXPECT_EQ(other.dropped(), 7 + static_cast<int64_t>(ranges.size()));
  EXPECT_EQ(other.classes().size(), 1U);
}

TEST(StackTree, RefusesInvalidTrees) {
  const RankSet one = RankSet::of({{0, 0}});
  StackTree::Parts good{.modules = {{"aa", "/bin/x"}},
                        .frames = {text_frame("main"), {.module = 0, .address = 1, .text = {}}},
                        .symbols = {},
                        .nodes = {{0, 0, {}}, {0, 1, one}},
                        .dropped = 0};
  ASSERT_TRUE(StackTree::of(good).ok());
  const auto refusal = [&](auto&& change) {
    StackTree::Parts bad = good;
    change(bad);
    return std::string(StackTree::of(bad).status().message());
  };
  EXPECT_EQ(refusal([](auto& p) { p.nodes[1].parent = 2; }),
            "node 1 of a stack tree has parent 2, which is behind it");
  EXPECT_EQ(refusal([](auto& p) { p.nodes[1].frame = 2; }),
            "node 1 of a stack tree has frame 2 of 2");
  EXPECT_EQ(refusal([](auto& p) { p.frames[1].module = 1; }),
            "frame 1 of a stack tree is in module 1 of 1");
  EXPECT_EQ(refusal([](auto& p) { p.nodes[1].parent = 1; }),
            "root 1 of a stack tree is a place in a module and no thread's name");
  EXPECT_EQ(refusal([](auto& p) { p.symbols.resize(3); }),
            "a stack tree has 3 symbols, more than 2");
  EXPECT_EQ(refusal([](auto& p) { p.dropped = -1; }),
            "a stack tree claims that -1 stacks were dropped");
  EXPECT_EQ(refusal([](auto& p) { p.nodes.resize(kStackTreeNodesMax + 1); }),
            "a stack tree has 65537 nodes, more than 65536");
  EXPECT_EQ(refusal([](auto& p) { p.modules.resize(kStackTreeModulesMax + 1); }),
            "a stack tree has 4097 modules, more than 4096");
}

TEST(StackTree, JoinsDuplicatesOfAMessage) {
  const StackTree::Parts parts{
      .modules = {{"aa", "/new/x"}, {"aa", "/bin/x"}, {"", "/unused"}},
      .frames = {text_frame("main"), {0, 5, {}}, {1, 5, "ignored"}, {2, 9, {}}},
      .symbols = {{}, {}, {.function = "run()", .file = {}, .line = 0}},
      .nodes = {{0, 0, {}},
                {0, 1, RankSet::of({{1, 1}})},
                {0, 2, RankSet::of({{2, 2}})},
                {0, 3, {}}},
      .dropped = 0};
  const auto tree = StackTree::of(parts);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->modules(), (std::vector<StackModule>{{"aa", "/bin/x"}}));
  EXPECT_EQ(tree->nodes().size(), 2U);
  ASSERT_EQ(tree->classes().size(), 1U);
  EXPECT_EQ(tree->classes()[0].ranks.text(), "1-2");
  EXPECT_EQ(tree->frame_text(tree->classes()[0].frames[0]), "x in run()");
}

TEST(StackTree, FrameTextShowsWhatIsKnown) {
  StackTree tree;
  tree.add(deep_sample(0, 1, 4));
  const uint32_t frame = tree.classes()[0].frames[0];
  EXPECT_EQ(tree.frame_text(frame), "x+0xfa0");
  tree.set_symbol(frame, {.function = "muster::run()", .file = {}, .line = 0});
  EXPECT_EQ(tree.frame_text(frame), "x in muster::run()");
  tree.set_symbol(frame,
                  {.function = "muster::run()", .file = "/a/b/trainer/train.cc", .line = 210});
  EXPECT_EQ(tree.frame_text(frame), "trainer/train.cc:210 in muster::run()");
  tree.set_symbol(frame, {.function = "other()", .file = {}, .line = 0});  // fewer fields
  tree.set_symbol(77, {.function = "nowhere", .file = {}, .line = 0});
  EXPECT_EQ(tree.frame_text(frame), "trainer/train.cc:210 in muster::run()");
  EXPECT_EQ(tree.frame_text(77), "?");

  // Merging brings symbols along, whichever tree has them.
  StackTree bare;
  bare.add(deep_sample(3, 1, 4));
  bare.merge(tree);
  EXPECT_EQ(bare.frame_text(bare.classes()[0].frames[0]), "trainer/train.cc:210 in muster::run()");
}

TEST(StackTree, TextsFromOutsideArePrintableAndBounded) {
  StackTree tree;
  StackSample sample = deep_sample(0, 1, 4);
  sample.modules[0].path = "/lib/\x1b[2J\xff.so";
  sample.ranks[0].threads[0].frames.push_back(text_frame(std::string(5000, '\n')));
  sample.ranks[0].threads[0].frames.push_back({.module = 9, .address = 1, .text = {}});
  sample.ranks[0].threads[0].truncated = true;
  tree.add(sample);
  const auto frames = tree.classes()[0].frames;
  ASSERT_EQ(frames.size(), 4U);
  EXPECT_EQ(tree.frame_text(frames[0]), "[outer frames left out]");
  EXPECT_EQ(tree.frame_text(frames[1]), "\\x1b[2J\\xff.so+0xfa0");
  EXPECT_LE(tree.frame_text(frames[2]).size(), kFrameTextBytesMax);
  EXPECT_EQ(tree.frame_text(frames[2]).find('\n'), std::string::npos);
  EXPECT_EQ(tree.frame_text(frames[3]), "[module not known]");
  tree.set_symbol(frames[1],
                  {.function = std::string(1 << 20, '<'), .file = "a\tb.cc", .line = -5});
  EXPECT_LE(tree.frame_text(frames[1]).size(), kFrameTextBytesMax);
  EXPECT_EQ(tree.frame_text(frames[1]).substr(0, 18), "a\\x09b.cc:0 in <<<");
}

}  // namespace
}  // namespace muster

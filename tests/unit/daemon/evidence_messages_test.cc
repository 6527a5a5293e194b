// Messages preserve their content, drop the rarest part if there is too much, and stay within their
// bounds for arbitrary input.
#include "daemon/evidence_messages.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "common/text/escape.h"
#include "tests/unit/mutate.h"

namespace muster::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

ThreadStack thread(const std::string& name, std::vector<StackFrame> frames) {
  ThreadStack stack;
  stack.tid = 7;
  stack.name = name;
  stack.state = 'S';
  stack.frames = std::move(frames);
  return stack;
}

RankStacks rank(int32_t number, std::vector<ThreadStack> threads) {
  RankStacks stacks;
  stacks.rank = number;
  stacks.threads = std::move(threads);
  return stacks;
}

// Ranks 0 and 2 wait in the same frame; 1 is elsewhere, and all have a second thread.
StackTree small_tree() {
  const StackFrame start{0, 0x1000, ""}, wait{1, 0x2000, ""}, load{0, 0x3000, ""},
      script{kNoModule, 0, "train.py:31 train_step"};
  const ThreadStack loader = thread("loader", {start, load});
  StackSample sample;
  sample.modules = {{"abcdef01", "/usr/bin/muster-trainer"}, {"", "/opt/лib.so"}};
  sample.ranks = {rank(0, {thread("main", {start, script, wait}), loader}),
                  rank(1, {thread("main", {start, load}), loader}),
                  rank(2, {thread("main", {start, script, wait}), loader})};
  StackTree tree;
  tree.add(sample);
  tree.set_symbol(tree.nodes().back().frame, {"muster::trainer::run(int)", "train.cc", 210});
  StackTree::Parts parts = tree.parts();
  parts.dropped = 3;
  return *StackTree::of(parts);
}

RankEvidence full_evidence(int32_t number) {
  RankEvidence evidence;
  evidence.rank = number;
  evidence.pid = 4711;
  evidence.phase = Phase::kStep;
  evidence.phase_age = std::chrono::seconds(3);
  evidence.step = 41;
  evidence.progress_age = std::chrono::milliseconds(2'500);
  evidence.step_seconds = 0.25;
  evidence.collective_wait_seconds = 1.5;
  evidence.data_wait_seconds = 0.125;
  evidence.groups = {{.name = "fsdp+context#1",
                      .members = 4,
                      .id = 8,
                      .enqueued = 43,
                      .started = 41,
                      .completed = 40,
                      .kind = CollectiveKind::kAllGather,
                      .dtype = 2,
                      .bytes = 1 << 20,
                      .collective = "layer 3 mlp all-gather",
                      .age = std::chrono::seconds(2),
                      .called = 41},
                     {.name = "data",
                      .members = 2,
                      .enqueued = 9,
                      .started = 9,
                      .completed = 9,
                      .collective = ""}};
  evidence.process_state = 'T';
  evidence.tracer_pid = 12;
  evidence.wait_channel = "futex_wait";
  evidence.memory = {1'500, 2'000};
  evidence.activity = {.is_known = true,
                       .cpu = std::chrono::milliseconds(70),
                       .io_bytes = 900,
                       .busy = 2,
                       .is_asleep = true,
                       .has_device = true,
                       .stopped_pid = 4711,
                       .stopped_name = "pt_data_worker"};
  evidence.stack_problem = "held by a debugger (pid 12)";
  evidence.stack_note = "no Python frames";
  evidence.last_lines = {"first", "completed step: 41"};
  evidence.files = {"/work/7/1/nccl-trace-3 (1234 bytes)"};
  return evidence;
}

v1::StackTree message_of(const StackTree& tree, size_t bytes_max = kStackTreeBytesMax) {
  v1::StackTree proto;
  stack_tree_to_proto(tree, bytes_max, proto);
  return proto;
}

TEST(EvidenceMessages, AStackTreeArrivesAsItWas) {
  const auto tree = stack_tree_from_proto(message_of(small_tree()));
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(*tree, small_tree());
  EXPECT_EQ(tree->dropped(), 3);
}

TEST(EvidenceMessages, EvidenceArrivesAsItWas) {
  RankEvidence dead;
  dead.rank = 6;
  dead.page_problem = "there is no such file";
  EvidenceMessages proto;
  evidence_to_proto({full_evidence(5), dead}, kEvidenceBytesMax, proto);
  EXPECT_THAT(evidence_from_proto(proto, 10), ElementsAre(full_evidence(5), dead));
  EXPECT_THAT(evidence_from_proto(proto, 1), SizeIs(1));
}

TEST(EvidenceMessages, AnInvalidTreeIsRefused) {
  struct Case {
    const char* what;
    void (*corrupt)(v1::StackTree&);
  };
  for (const Case& c : {Case{"a node's parent is itself",
                             [](v1::StackTree& t) { t.mutable_nodes(1)->set_parent(2); }},
                        Case{"a node's parent comes behind it",
                             [](v1::StackTree& t) { t.mutable_nodes(0)->set_parent(3); }},
                        Case{"a parent beyond all nodes",
                             [](v1::StackTree& t) { t.mutable_nodes(1)->set_parent(UINT32_MAX); }},
                        Case{"a frame that is not there",
                             [](v1::StackTree& t) { t.mutable_nodes(0)->set_frame(1'000); }},
                        Case{"a module that is not there",
                             [](v1::StackTree& t) { t.mutable_frames(1)->set_module(1'000); }}}) {
    v1::StackTree proto = message_of(small_tree());
    c.corrupt(proto);
    const absl::Status status = stack_tree_from_proto(proto).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.what << ": " << status;
  }
}

TEST(EvidenceMessages, GarbageStaysWithinItsBounds) {
  v1::StackReport good;
  stack_tree_to_proto(small_tree(), kStackTreeBytesMax, *good.mutable_stacks());
  evidence_to_proto({full_evidence(0), full_evidence(1)}, kEvidenceBytesMax, *good.mutable_ranks());
  const std::string bytes = good.SerializeAsString();
  Mutator mutator(7);
  int parsed = 0, trees = 0;
  for (int i = 0; i < 3'000; ++i) {
    v1::StackReport proto;
    // Newer parsers refuse string fields that are not UTF-8; older ones accept them.
    if (!proto.ParseFromString(mutator.mutate(bytes))) continue;
    ++parsed;
    if (const auto tree = stack_tree_from_proto(proto.stacks()); tree.ok()) {
      ++trees;
      for (uint32_t frame = 0; frame < tree->frames().size(); ++frame) {
        const std::string text = tree->frame_text(frame);
        EXPECT_EQ(escape_controls(text, Layout::kOneLine), text);
      }
    }
    for (const RankEvidence& rank : evidence_from_proto(proto.ranks(), 4)) {
      EXPECT_GE(rank.rank, -1);
      EXPECT_GE(rank.progress_age, Duration::zero());
      EXPECT_LE(rank.groups.size(), size_t{kProgressGroupsMax});
    }
  }
  EXPECT_GT(parsed, 300);
  EXPECT_GT(trees, 150);
}

TEST(EvidenceMessages, NonFiniteAndHugeNumbersAreSanitised) {
  EvidenceMessages proto;
  v1::RankEvidence& rank = *proto.Add();
  rank.set_rank(-5);
  rank.set_step(-7);
  rank.set_phase_age_ns(std::numeric_limits<int64_t>::min());
  rank.set_progress_age_ns(std::numeric_limits<int64_t>::max());
  rank.set_step_seconds(std::numeric_limits<double>::quiet_NaN());
  rank.set_collective_wait_seconds(-std::numeric_limits<double>::infinity());
  rank.set_process_state(0x1B);
  rank.add_groups()->set_kind(99);
  rank.set_wait_channel("a\x1b[31m\xff");
  for (int i = 0; i < 100; ++i) rank.add_last_lines(std::to_string(i) + std::string(1'000, 'x'));
  const RankEvidence read = evidence_from_proto(proto, 1).at(0);
  EXPECT_EQ(read.rank, -1);
  EXPECT_EQ(read.step, -1);
  EXPECT_EQ(read.phase_age, Duration::zero());
  EXPECT_EQ(read.progress_age, std::chrono::hours(365 * 24));
  EXPECT_EQ(read.step_seconds, 0);
  EXPECT_EQ(read.collective_wait_seconds, 0);
  EXPECT_EQ(read.process_state, '?');
  EXPECT_EQ(read.groups.at(0).kind, CollectiveKind::kNone);
  EXPECT_EQ(read.wait_channel, "a\\x1b[31m\\xff");
  ASSERT_THAT(read.last_lines, SizeIs(kEvidenceLinesMax));
  EXPECT_THAT(read.last_lines.back(), HasSubstr("99x")) << "the newest lines are retained";
  EXPECT_LE(read.last_lines.back().size(), kEvidenceLineBytesMax);
}

// 200 ranks, each with its own deep stack below a common one, and its own second thread.
TEST(EvidenceMessages, AnOversizedTreeKeepsStacksOfManyRanks) {
  StackSample sample;
  sample.modules = {{"abcdef01", "/usr/bin/muster-trainer"}};
  for (int32_t r = 0; r < 200; ++r) {
    std::vector<StackFrame> own = {{0, 1, ""}, {0, 2, ""}};
    if (r >= 150) {
      for (uint64_t depth = 0; depth < 50; ++depth)
        own.push_back({0, 1'000 + static_cast<uint64_t>(r) * 100 + depth, ""});
    }
    sample.ranks.push_back(
        rank(r, {thread("main", own), thread("t" + std::to_string(r), {{0, 3, ""}})}));
  }
  StackTree tree;
  tree.add(sample);
  const v1::StackTree whole = message_of(tree);
  const std::vector<uint32_t> common = {tree.classes("main")[0].frames};
  for (const size_t bytes_max : {whole.ByteSizeLong() / 2, size_t{500}, size_t{0}}) {
    const v1::StackTree proto = message_of(tree, bytes_max);
    EXPECT_LE(proto.ByteSizeLong(), bytes_max + 12) << "plus the number of dropped stacks";
    const auto cut = stack_tree_from_proto(proto);
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_GT(cut->dropped(), 0);
    if (bytes_max == 0) {
      EXPECT_EQ(cut->dropped(), 400);
      continue;
    }
    const auto classes = cut->classes("main");
    ASSERT_FALSE(classes.empty());
    EXPECT_EQ(classes[0].frames, common);
    for (const int32_t r : {0, 149}) EXPECT_TRUE(classes[0].ranks.contains(r));
    RankSet all;
    for (const StackTree::Class& c : classes) all.add(c.ranks);
    EXPECT_EQ(all.text(), "0-199") << "cut, and still present";
    EXPECT_LT(cut->classes("").size(), tree.classes("").size());
  }
}

TEST(EvidenceMessages, EvidenceThatIsTooMuchLosesOutputFirst) {
  std::vector<RankEvidence> ranks;
  for (int32_t r = 0; r < 1'000; ++r) {
    ranks.push_back(full_evidence(r));
    ranks.back().last_lines.assign(kEvidenceLinesMax, std::string(kEvidenceLineBytesMax, 'x'));
    if (r != 999) ranks.back().stack_problem = ranks.back().stack_note = "";
  }
  const auto cut_to = [&](size_t bytes_max) {
    EvidenceMessages proto;
    evidence_to_proto(ranks, bytes_max, proto);
    size_t bytes = 0;
    for (const v1::RankEvidence& rank : proto) bytes += rank.ByteSizeLong();
    EXPECT_LE(bytes, bytes_max);
    return evidence_from_proto(proto, 10'000);
  };
  const auto read = cut_to(kEvidenceBytesMax);
  ASSERT_THAT(read, SizeIs(1'000));
  EXPECT_THAT(read[0].last_lines, SizeIs(5));
  EXPECT_THAT(read[0].groups, SizeIs(2));
  // Slightly too little for all groups.
  for (RankEvidence& rank : ranks) {
    rank.last_lines.clear();
    rank.files.clear();
  }
  EvidenceMessages all_groups;
  evidence_to_proto(ranks, kEvidenceBytesMax, all_groups);
  size_t all_bytes = 0;
  for (const v1::RankEvidence& rank : all_groups) all_bytes += rank.ByteSizeLong();
  const auto less = cut_to(all_bytes);
  ASSERT_THAT(less, SizeIs(1'000));
  EXPECT_THAT(less[0].last_lines, SizeIs(0));
  EXPECT_THAT(less[0].groups, SizeIs(1)) << "the group in which the rank waits";
  const auto least = cut_to(2'000);
  ASSERT_THAT(least, SizeIs(1));
  EXPECT_EQ(least[0].rank, 999) << "the only rank with a problem";
}

}  // namespace
}  // namespace muster::daemon

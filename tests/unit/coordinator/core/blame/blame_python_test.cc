// Sentences about Python programs that report few or no collectives.
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/core/blame/blame.h"
#include "tests/unit/coordinator/core/blame/blame_world.h"

namespace muster::coordinator {
namespace {

const std::string kTorch = "/v/lib/python3.11/site-packages/torch/";

// Adds the Python frames of each rank's main thread, outermost first.
void add_stacks(World& world, const std::vector<std::vector<std::string>>& stacks) {
  StackSample sample;
  for (size_t rank = 0; rank < stacks.size(); ++rank) {
    RankStacks& one = sample.ranks.emplace_back();
    one.rank = static_cast<int32_t>(rank);
    ThreadStack& thread = one.threads.emplace_back();
    thread.name = "main";
    for (const std::string& text : stacks[rank]) thread.frames.emplace_back().text = text;
  }
  world.input.later.stacks.add(sample);
}

// Programs of PyTorch and JAX that report no collectives: two of four ranks wait, so that no stack
// is usual.
TEST(BlamePython, PythonStacksShowTheRankThatDoesNotWait) {
  const std::string main = "/home/u/job/train.py:88 <module>";
  const std::vector<std::string> in_backward = {
      main, "/home/u/job/train.py:31 step", kTorch + "_tensor.py:581 backward",
      kTorch + "autograd/graph.py:829 _engine_run_backward"};
  const std::vector<std::string> in_barrier = {
      main, kTorch + "distributed/c10d_logger.py:81 wrapper",
      kTorch + "distributed/distributed_c10d.py:4818 barrier"};
  const std::vector<std::string> in_fsdp = {
      main, kTorch + "distributed/fsdp/_fully_shard/_fsdp_param_group.py:297 wait_for_unshard"};
  const std::vector<std::string> in_jax = {
      main, "/v/lib/python3.11/site-packages/jax/_src/array.py:632 _value"};
  World world(5);
  add_stacks(world, {in_backward,
                     in_barrier,
                     {main, "/home/u/job/data.py:9 read",
                      "/usr/lib/python3.11/multiprocessing/connection.py:395 _recv"},
                     in_fsdp,
                     in_jax});
  const Blame blame = world.blame();
  EXPECT_EQ(blame.shape, HangShape::kBehind);
  EXPECT_EQ(
      blame.sentence,
      "rank 2 on node2: it is not in a collective, and ranks 0-1,3-4 wait in one; it stands at "
      "job/data.py:9 read");
  EXPECT_GT(blame.suspects[0].confidence, 0.8);
  // A backward pass that runs is no wait.
  World busy(2);
  busy.rank(0).process_state = 'R';
  add_stacks(busy, {in_backward, in_barrier});
  EXPECT_EQ(busy.blame().suspects[0].rank.value(), 0);
}

// A thread of rank 2 has raised an exception, or runs on after the others have ended.
TEST(BlamePython, ExceptionsAndRanksThatAreLeftOverCount) {
  World world(4);
  world.rank(2).last_lines = {"Exception in thread loader:", "Traceback (most recent call last):",
                              "  File \"/home/u/job/data.py\", line 9, in read",
                              "    raise ValueError(n)", "ValueError: shard 3"};
  world.rank(1).last_lines = {"  File \"/home/u/job/train.py\", line 31, in step",
                              "RuntimeError: Connection closed by peer [127.0.0.1]:2103"};
  for (RankEvidence& evidence : world.input.later.ranks) {
    GroupEvidence& group = evidence.groups.emplace_back();
    group.name = "data";
    group.members = 4;
    group.enqueued = group.started = 41;
    group.completed = 40;
    group.kind = CollectiveKind::kAllReduce;
  }
  const Blame printed = world.blame();
  EXPECT_EQ(printed.suspects[0].rank.value(), 2) << printed.sentence;
  EXPECT_NE(printed.sentence.find("it has printed \"ValueError: shard 3 (job/data.py:9 read)\""),
            std::string::npos)
      << printed.sentence;

  World left(4);
  for (const int32_t rank : {0, 1, 3}) {
    left.input.gone[Rank(rank)] = kFinishedClause;
    left.rank(rank).process_state = '?';
  }
  EXPECT_EQ(left.blame().suspects[0].rank.value(), 2);
  EXPECT_EQ(left.blame().sentence,
            "rank 2 on node2: it still runs, and most ranks have exited with code 0");
  // One early exit holds up the others.
  World early(4);
  early.input.gone[Rank(2)] = kFinishedClause;
  EXPECT_EQ(early.blame().suspects[0].rank.value(), 2);
}

}  // namespace
}  // namespace muster::coordinator

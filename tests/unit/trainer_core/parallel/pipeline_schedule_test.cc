#include "trainer_core/parallel/pipeline_schedule.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

std::vector<PipelineShape> shapes() {
  std::vector<PipelineShape> all;
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (int32_t micro_batches = 1; micro_batches <= 24; ++micro_batches) {
      for (int32_t chunks = 1; chunks <= 4; ++chunks) {
        if (chunks > 1 && (stages == 1 || micro_batches % stages != 0)) continue;
        all.push_back({stages, chunks, micro_batches});
      }
    }
  }
  return all;
}

std::string name(const PipelineShape& shape) {
  return std::to_string(shape.stages) + " stages of " + std::to_string(shape.chunks) + " chunks, " +
         std::to_string(shape.micro_batches) + " micro-batches";
}

// A micro-batch's activations on their way to a virtual stage, or its gradient.
using Message = std::tuple<PassKind, int32_t, int32_t>;

// Simulates all stages: a stage runs one pass after the other and waits for the messages that the
// next one reads. Its messages leave one after the other, each only when its receiver requests it.
// Passes take 1 forward and 2 backward. With `one_buffer` a pass cannot end before the previous
// message of its kind has left.
class Pipeline {
 public:
  using Schedule = std::function<std::vector<PipelinePass>(const PipelineShape&, int32_t)>;

  explicit Pipeline(const PipelineShape& shape, bool one_buffer = false,
                    const Schedule& schedule = pipeline_schedule)
      : shape_(shape), one_buffer_(one_buffer) {
    for (int32_t stage = 0; stage < shape.stages; ++stage)
      stages_.push_back({.passes = schedule(shape, stage)});
  }

  // Returns when the last pass ends; none if all stages wait for each other.
  std::optional<int64_t> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int32_t s = 0; s < shape_.stages; ++s) moved = advance(s) || moved;
    }
    int64_t end = 0;
    for (const Stage& stage : stages_) {
      if (stage.next < stage.passes.size() || stage.sent < stage.outgoing.size())
        return std::nullopt;
      end = std::max(end, stage.time);
    }
    return end;
  }

 private:
  struct Stage {
    std::vector<PipelinePass> passes;
    size_t next = 0;
    int64_t time = 0;
    std::vector<std::pair<Message, int64_t>> outgoing{};  // and when each was made
    size_t sent = 0;
    bool has_input = false;                              // the next pass has its input
    std::set<std::tuple<int32_t, int32_t>> forwarded{};  // chunk, micro-batch
  };

  bool advance(int32_t s) {
    Stage& stage = stages_[static_cast<size_t>(s)];
    if (stage.next == stage.passes.size()) return false;
    const PipelinePass& pass = stage.passes[stage.next];
    const int32_t place = pass.chunk * shape_.stages + s;
    const bool forward = pass.kind == PassKind::kForward;
    const int32_t from = forward ? place - 1 : place + 1;
    if (!forward && !stage.forwarded.contains({pass.chunk, pass.micro_batch})) return false;
    if (!stage.has_input && from >= 0 && from < shape_.virtual_stages()) {
      // A stage's own message needs no sending.
      Stage& sender = stages_[static_cast<size_t>(from % shape_.stages)];
      if (sender.sent == sender.outgoing.size()) return false;
      const auto& [message, made] = sender.outgoing[sender.sent];
      if (message != Message{pass.kind, place, pass.micro_batch}) return false;
      stage.time = std::max(stage.time, made);
      ++sender.sent;
    }
    const bool had_input = std::exchange(stage.has_input, true);
    if (one_buffer_ && is_sending(stage, pass.kind)) return !had_input;
    stage.has_input = false;
    if (forward) stage.forwarded.insert({pass.chunk, pass.micro_batch});
    stage.time += forward ? 1 : 2;
    const int32_t to = forward ? place + 1 : place - 1;
    if (to >= 0 && to < shape_.virtual_stages())
      stage.outgoing.push_back({Message{pass.kind, to, pass.micro_batch}, stage.time});
    ++stage.next;
    return true;
  }

  static bool is_sending(const Stage& stage, PassKind kind) {
    return std::any_of(
        stage.outgoing.begin() + static_cast<ptrdiff_t>(stage.sent), stage.outgoing.end(),
        [&](const auto& outgoing) { return std::get<PassKind>(outgoing.first) == kind; });
  }

  PipelineShape shape_;
  bool one_buffer_;
  std::vector<Stage> stages_;
};

TEST(PipelineSchedule, EveryPassComesOnce) {
  for (const PipelineShape& shape : shapes()) {
    for (int32_t stage = 0; stage < shape.stages; ++stage) {
      std::set<std::tuple<PassKind, int32_t, int32_t>> seen;
      for (const PipelinePass& pass : pipeline_schedule(shape, stage)) {
        EXPECT_TRUE(seen.insert({pass.kind, pass.chunk, pass.micro_batch}).second) << name(shape);
        EXPECT_TRUE(pass.chunk >= 0 && pass.chunk < shape.chunks) << name(shape);
        EXPECT_TRUE(pass.micro_batch >= 0 && pass.micro_batch < shape.micro_batches) << name(shape);
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(2 * shape.chunks * shape.micro_batches));
    }
  }
}

TEST(PipelineSchedule, NeverDeadlocks) {
  for (const PipelineShape& shape : shapes())
    EXPECT_TRUE(Pipeline(shape, /*one_buffer=*/true).run()) << name(shape);
}

TEST(PipelineSchedule, ForwardPassesAloneNeverDeadlock) {
  const auto schedule = [](const PipelineShape& shape, int32_t) { return forward_schedule(shape); };
  for (PipelineShape shape : shapes()) {
    ++shape.micro_batches;  // any number will do
    EXPECT_TRUE(Pipeline(shape, /*one_buffer=*/true, schedule).run()) << name(shape);
    std::set<std::pair<int32_t, int32_t>> seen;
    std::map<int32_t, int32_t> held;  // micro-batches by buffer
    for (const PipelinePass& pass : forward_schedule(shape)) {
      EXPECT_TRUE(seen.insert({pass.chunk, pass.micro_batch}).second) << name(shape);
      if (pass.chunk == 0) held[pass.batch] = pass.micro_batch;
      EXPECT_EQ(held[pass.batch], pass.micro_batch) << name(shape);
      EXPECT_EQ(pass.slot, 0);
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(shape.chunks * shape.micro_batches));
  }
}

TEST(PipelineSchedule, TokensAreHeldFromTheFirstPassToTheLast) {
  for (const PipelineShape& shape : shapes()) {
    for (int32_t stage = 0; stage < shape.stages; ++stage) {
      std::map<int32_t, int32_t> held, passes;
      for (const PipelinePass& pass : pipeline_schedule(shape, stage)) {
        if (passes[pass.micro_batch]++ == 0) held.emplace(pass.batch, pass.micro_batch);
        EXPECT_EQ(held[pass.batch], pass.micro_batch) << name(shape);
        if (passes[pass.micro_batch] == 2 * shape.chunks) held.erase(pass.batch);
      }
      EXPECT_TRUE(held.empty());
    }
  }
}

TEST(PipelineSchedule, TheBubbleIsTheIdleFraction) {
  for (const PipelineShape& shape : shapes()) {
    const auto end = Pipeline(shape).run();
    ASSERT_TRUE(end) << name(shape);
    const double busy = 3.0 * shape.chunks * shape.micro_batches;
    const double idle = 1 - busy / static_cast<double>(*end);
    EXPECT_NEAR(idle, pipeline_bubble(shape), 1e-12) << name(shape);
  }
}

TEST(PipelineSchedule, SavedActivationsAreBoundedByTheStages) {
  for (const PipelineShape& shape : shapes()) {
    for (int32_t stage = 0; stage < shape.stages; ++stage) {
      const int32_t behind = shape.stages - 1 - stage;
      const int32_t ahead =
          shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * shape.stages;
      EXPECT_EQ(activation_slots(shape, stage),
                std::min(shape.chunks * shape.micro_batches, ahead + 1))
          << name(shape) << ", stage " << stage;
      std::map<int32_t, std::pair<int32_t, int32_t>> kept;  // by slot
      for (const PipelinePass& pass : pipeline_schedule(shape, stage)) {
        const std::pair owner{pass.chunk, pass.micro_batch};
        if (pass.kind == PassKind::kForward) {
          EXPECT_TRUE(kept.emplace(pass.slot, owner).second) << name(shape);
        } else {
          EXPECT_EQ(kept[pass.slot], owner) << name(shape);
          kept.erase(pass.slot);
        }
      }
    }
  }
}

TEST(PipelineSchedule, IsMegatronsOrder) {
  // Stage 0 of 2 with 2 chunks and 4 micro-batches: four forward passes ahead, as in the paper's
  // figure 4.
  using enum PassKind;
  using Pass = std::tuple<PassKind, int32_t, int32_t>;
  const std::vector<Pass> expected = {
      {kForward, 0, 0},  {kForward, 0, 1},  {kForward, 1, 0},  {kForward, 1, 1},
      {kForward, 0, 2},  {kBackward, 1, 0}, {kForward, 0, 3},  {kBackward, 1, 1},
      {kForward, 1, 2},  {kBackward, 0, 0}, {kForward, 1, 3},  {kBackward, 0, 1},
      {kBackward, 1, 2}, {kBackward, 1, 3}, {kBackward, 0, 2}, {kBackward, 0, 3}};
  std::vector<Pass> passes;
  for (const PipelinePass& pass : pipeline_schedule({2, 2, 4}, 0))
    passes.emplace_back(pass.kind, pass.chunk, pass.micro_batch);
  EXPECT_EQ(passes, expected);
}

}  // namespace
}  // namespace muster::trainer

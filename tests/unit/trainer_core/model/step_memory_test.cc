// A step's peak memory equals its plan to the byte: the arena is the plan, and the step uses all of
// it and nothing else. A program of its own, because it counts allocations.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "tests/unit/trainer_core/model/untouched_words.h"
#include "trainer_core/optim/optimizer.h"

namespace {

// Counts allocations of all threads while `counting`.
std::atomic<bool> counting{false};
std::atomic<size_t> allocations{0};
std::atomic<size_t> largest{0};

void* allocate(size_t bytes) {
  if (counting) {
    ++allocations;
    size_t known = largest;
    while (bytes > known && !largest.compare_exchange_weak(known, bytes)) {
    }
  }
  if (void* memory = std::malloc(std::max<size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace muster::trainer {
namespace {

// No buffer except the workspace is a whole number of cache lines: each one is followed by a gap,
// which reveals writes beyond its end.
constexpr int32_t kBatch = 2, kLength = 131, kThreads = 2;

ModelConfig odd_llama() {
  ModelConfig config = small_config(3, 1, false);
  config.vocab_size = 21;
  config.num_layers = 3;
  config.emb_dim = 13;
  config.mlp_dim = 11;
  return config;
}

ModelConfig odd_gpt() {
  ModelConfig config = small_gpt();
  config.num_layers = 3;
  config.emb_dim = 13;
  config.num_query_heads = config.num_kv_heads = 3;
  config.mlp_dim = 11;
  config.trainable_position_size = 140;
  return config;
}

// All rows of experts are used if no choice is dropped.
ModelConfig odd_mixtral() {
  ModelConfig config = odd_llama();
  config.experts = {.count = 3, .per_token = 2, .mlp_dim = 5, .layer_step = 2, .balance_weight = 1};
  return config;
}

ModelConfig odd_parallel() {
  ModelConfig config = odd_llama();
  config.parallel_block = true;
  return config;
}

ModelConfig odd_relative() {
  ModelConfig config = odd_llama();
  config.position_type = PositionType::kRelative;
  config.relative_buckets = {.count = 32, .max_distance = 128};
  config.attention_extra_zero = true;
  return config;
}

// The state of delayed scaling is not a whole number of cache lines, either.
ModelConfig odd_quantized(ModelConfig config, QuantizationType type) {
  config.quantization = {.type = type, .amax_history_length = 5};
  return config;
}

ModelConfig odd_adapted(ModelConfig config, double dropout) {
  config.lora = {
      .rank = 3, .alpha = 6, .dropout = dropout, .targets = lora_targets(config, LoraLayers::kAll)};
  return config;
}

// A model and AdamW, as in training.
struct Step {
  Step(const ModelConfig& config, RematPolicy policy)
      : optimizer(Optimizer::make({}, ShardLayout::whole(model_params(config)))),
        plan(build_transformer_plan(config, kBatch, kLength, DType::kF32, layer_placements(policy),
                                    true, kThreads, optimizer->state_elements())),
        arena(plan.memory),
        ops(cpu_ops(kThreads)),
        data(config.vocab_size, int64_t{kBatch} * kLength) {}

  std::span<float> state() const {
    return {arena.f32(plan.optimizer_state), static_cast<size_t>(optimizer->state_elements())};
  }
  // Writes random values to all parameters.
  void randomize(Transformer& model) const {
    randomize_params(plan.sharding.layout.table(), model.params());
    if (plan.sharding.frozen.elements() == 0) return;
    const Tensor frozen = model.frozen_parameters();
    randomize_params(plan.sharding.frozen.table(),
                     {frozen.f32(), static_cast<size_t>(frozen.elements())});
  }
  // Runs one training step.
  void run(Transformer& model) {
    model.forward_backward(data.view());
    const UpdateStep update{.learning_rate = 1e-3};
    EXPECT_TRUE(optimizer->update(*ops, update, {model.params(), model.grads(), state()}).ok());
    model.advance_scaling();
  }

  std::unique_ptr<Optimizer> optimizer;
  TransformerPlan plan;
  Arena arena;
  std::unique_ptr<Ops> ops;
  TestBatch data;
};

class StepMemory : public testing::TestWithParam<ModelConfig> {};

TEST_P(StepMemory, UsesExactlyTheBytesOfItsPlan) {
  for (size_t policy = 0; policy < kRematPolicyNames.size(); ++policy) {
    Step step(GetParam(), static_cast<RematPolicy>(policy));
    const TransformerPlan& plan = step.plan;
    ASSERT_EQ(step.arena.bytes(), plan.memory.total_bytes());
    const std::span<uint32_t> words = words_of(step.arena);
    std::ranges::fill(words, kUntouched);

    Transformer model(plan, step.arena, *step.ops);
    step.randomize(model);
    std::ranges::fill(step.state(), 0.0F);  // the initial state of a training
    step.run(model);

    for (const PlannedBuffer& buffer : plan.memory.buffers())
      EXPECT_NE(buffer.name == "workspace", buffer.bytes % kBufferAlignment != 0) << buffer.name;
    expect_planned_words_written(plan.memory, words, std::string(kRematPolicyNames[policy]));
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_P(StepMemory, OffloadedBuffersFollowTheDevices) {
  for (size_t policy = 0; policy < kRematPolicyNames.size(); ++policy) {
    const TransformerPlan plan = Step(GetParam(), static_cast<RematPolicy>(policy)).plan;
    for (const PlannedBuffer& buffer : plan.memory.buffers()) {
      const bool offloaded = buffer.category == MemoryCategory::kOffloaded;
      EXPECT_EQ(offloaded, buffer.offset >= plan.device_bytes) << buffer.name;
    }
    const bool offloads = kRematPolicyNames[policy].ends_with("offloaded");
    EXPECT_EQ(plan.memory.category_bytes(MemoryCategory::kOffloaded) > 0, offloads);
    if (!offloads) {
      EXPECT_EQ(plan.device_bytes, plan.memory.total_bytes());
    }
  }
}

// oneDNN allocates some handles per GEMM. The smallest tensor of a layer (lse) is ten times as
// large.
constexpr size_t kHandleBytesMax = 256;

// In the first step oneDNN creates what it caches for each shape.
TEST_P(StepMemory, AllocatesNoTensors) {
  for (size_t policy = 0; policy < kRematPolicyNames.size(); ++policy) {
    Step step(GetParam(), static_cast<RematPolicy>(policy));
    Transformer model(step.plan, step.arena, *step.ops);
    step.randomize(model);
    step.run(model);
    allocations = largest = 0;
    counting = true;
    step.run(model);
    counting = false;
    EXPECT_LE(largest, kHandleBytesMax) << kRematPolicyNames[policy];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, StepMemory,
    testing::Values(odd_llama(), odd_gpt(), odd_mixtral(), odd_parallel(), odd_relative(),
                    odd_adapted(odd_llama(), 0), odd_adapted(odd_gpt(), 0.1),
                    odd_quantized(odd_gpt(), QuantizationType::kInt8),
                    odd_quantized(odd_llama(), QuantizationType::kFp8Delayed),
                    odd_quantized(odd_parallel(), QuantizationType::kFp8Current)));

// The test above would detect an allocation.
TEST(Counting, CountsAllocations) {
  allocations = largest = 0;
  counting = true;
  const std::vector<char> block(12'345);
  counting = false;
  EXPECT_EQ(allocations, 1U);
  EXPECT_EQ(largest, 12'345U);
  EXPECT_EQ(block.back(), 0);
}

}  // namespace
}  // namespace muster::trainer

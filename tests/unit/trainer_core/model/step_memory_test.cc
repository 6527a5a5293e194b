// A step's peak memory is its plan's to the byte: the arena is the plan, the step uses all of it and nothing beside it. A
// program of its own, because it counts what is allocated.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/optim/adamw.h"

namespace {

// While `counting`, of all threads.
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

// No buffer but the workspace is a whole number of cache lines: every one is followed by a gap, which shows who writes
// beyond its end.
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

// A signalling NaN that no operation produces.
constexpr uint32_t kUntouched = 0x7FA5A5A5;

// The arena's words, and those behind it up to the end of its last page.
std::span<uint32_t> words_of(const Arena& arena) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t mapped = (arena.bytes() + page - 1) / page * page;
  return {static_cast<uint32_t*>(arena.buffer(0)), mapped / sizeof(uint32_t)};
}

// What training does in a step.
void step(const TransformerPlan& plan, const Arena& arena, Ops& ops, Transformer& model,
          const TestBatch& data) {
  model.forward_backward(data.view());
  const size_t n = model.params().size();
  adamw_update(
      ops, plan.params, {}, 1e-3, 1, 1,
      {model.params(), model.grads(), {arena.f32(plan.adam_m), n}, {arena.f32(plan.adam_v), n}});
}

class StepMemory : public testing::TestWithParam<ModelConfig> {
 protected:
  static TransformerPlan plan_of(RematPolicy policy) {
    return plan_transformer(GetParam(), kBatch, kLength, DType::kF32, layer_keeps(policy), true,
                            kThreads);
  }
};

TEST_P(StepMemory, UsesEveryByteOfItsPlanAndNoOther) {
  for (size_t policy = 0; policy < kRematPolicyNames.size(); ++policy) {
    const TransformerPlan plan = plan_of(static_cast<RematPolicy>(policy));
    Arena arena(plan.memory);
    ASSERT_EQ(arena.bytes(), plan.memory.total_bytes());
    const std::span<uint32_t> words = words_of(arena);
    std::ranges::fill(words, kUntouched);

    const auto ops = cpu_ops(kThreads);
    Transformer model(plan, arena, *ops);
    randomize_params(plan, model.params());
    // A training starts with moments of zero, and writes the tail.
    std::fill_n(arena.f32(plan.adam_m), model.params().size(), 0.0F);
    std::fill_n(arena.f32(plan.adam_v), model.params().size(), 0.0F);
    std::ranges::fill(model.grad_block().last(kGradTailElements), 0.0F);
    step(plan, arena, *ops, model, TestBatch(GetParam().vocab_size, int64_t{kBatch} * kLength));

    std::vector<bool> planned(words.size());
    for (const PlannedBuffer& buffer : plan.memory.buffers()) {
      const size_t first = buffer.offset / sizeof(uint32_t);
      const size_t end = first + buffer.bytes / sizeof(uint32_t);
      EXPECT_NE(buffer.name == "workspace", buffer.bytes % kBufferAlignment != 0) << buffer.name;
      for (size_t i = first; i < end; ++i) {
        planned[i] = true;
        ASSERT_NE(words[i], kUntouched) << kRematPolicyNames[policy] << ": element " << i - first
                                        << " of " << end - first << " of " << buffer.name;
      }
    }
    for (size_t i = 0; i < words.size(); ++i) {
      if (!planned[i]) {
        ASSERT_EQ(words[i], kUntouched) << kRematPolicyNames[policy] << ": word " << i;
      }
    }
  }
}

TEST_P(StepMemory, OffloadedBuffersLieBehindTheDevices) {
  for (size_t policy = 0; policy < kRematPolicyNames.size(); ++policy) {
    const TransformerPlan plan = plan_of(static_cast<RematPolicy>(policy));
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

// oneDNN makes some handles for each product. The smallest tensor of a layer (lse) has ten times as many bytes.
constexpr size_t kHandleBytesMax = 256;

// The first step lets oneDNN make what it keeps for each shape.
TEST_P(StepMemory, AllocatesNoTensors) {
  for (size_t policy = 0; policy < kRematPolicyNames.size(); ++policy) {
    TestModel test(GetParam(), kBatch, kLength, static_cast<RematPolicy>(policy), kThreads);
    randomize_params(test.plan, test.model.params());
    const TestBatch data(GetParam().vocab_size, int64_t{kBatch} * kLength);
    step(test.plan, test.arena, *test.ops, test.model, data);
    allocations = largest = 0;
    counting = true;
    step(test.plan, test.arena, *test.ops, test.model, data);
    counting = false;
    EXPECT_LE(largest, kHandleBytesMax) << kRematPolicyNames[policy];
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StepMemory, testing::Values(odd_llama(), odd_gpt()));

// The test above would see an allocation.
TEST(Counting, SeesWhatIsAllocated) {
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

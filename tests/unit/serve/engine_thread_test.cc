// The requests that wait for the engine's thread.
#include "serve/engine_thread.h"

#include <latch>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/transformer_fixture.h"
#include "trainer_core/comm/local.h"

namespace muster::serve {
namespace {

std::unique_ptr<trainer::Engine> small_engine(
    std::unique_ptr<trainer::TensorRanks> ranks = nullptr) {
  const trainer::ModelConfig config = trainer::small_config(4, 2, false);
  const trainer::DecoderSize size{.context = 64, .sequences_max = 2, .step_rows = 8};
  const auto cache = trainer::cache_size(config, trainer::DType::kF32, size);
  EXPECT_TRUE(cache.ok()) << cache.status();
  auto decoder = std::make_unique<trainer::Decoder>(config, trainer::DType::kF32, *cache, size,
                                                    std::span<const trainer::LoraConfig>(), nullptr,
                                                    std::move(ranks));
  const auto status =
      decoder->read_params([](const std::vector<trainer::TensorBox>&, std::span<float> block) {
        std::ranges::fill(block, 0.01F);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return std::make_unique<trainer::Engine>(std::move(decoder), config.vocab_size);
}

// Clients may send and leave many times during one step.
TEST(EngineThread, CancelledRequestsDoNotAccumulate) {
  std::latch in_step(1), tested(1);
  bool first = true;
  EngineThread thread(small_engine(), {.deliver =
                                           [&](const std::vector<CallEvent>&) {
                                             if (!std::exchange(first, false)) return;
                                             in_step.count_down();
                                             tested.wait();
                                           },
                                       .fail = {}});
  const trainer::GenerationRequest request{.prompt = {1, 2, 3}, .max_tokens = 4};
  thread.submit(1, request);
  in_step.wait();
  for (CallId call = 2; call < 1000; ++call) {
    thread.submit(call, request);
    thread.cancel(call);
  }
  EXPECT_EQ(thread.stats().waiting, 0);
  tested.count_down();
}

// Rank 1 has joined and computes nothing, as a stopped process. Without an end of the step, the
// thread would wait for it for an hour.
TEST(EngineThread, EndsWhileARankDoesNotRespond) {
  const trainer::LocalWorld world(2, std::chrono::hours(1));
  const auto silent = world.join(1);
  EngineThread thread(
      small_engine(std::make_unique<trainer::TensorRanks>(world.join(0))),
      {.deliver = [](const std::vector<CallEvent>&) {}, .fail = [](const absl::Status&) {}});
  thread.submit(1, {.prompt = {1, 2, 3}, .max_tokens = 4});
}

}  // namespace
}  // namespace muster::serve

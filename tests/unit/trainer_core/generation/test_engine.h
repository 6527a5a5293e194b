// An engine and its results, for the tests of this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/random/philox.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/checkpoint/stored_tensor.h"
#include "trainer_core/generation/engine.h"

namespace muster::trainer {

// An adapter of a model.
struct TestAdapter {
  ModelConfig model;  // has `lora` set
  std::vector<ParamSpec> table = {};
  std::vector<float> values = {};
};

// The tokens, and for each position the log-probabilities, of a finished request.
struct Result {
  std::vector<int32_t> output;
  std::vector<PositionLogprobs> prompt;
  std::vector<PositionLogprobs> logprobs;
  std::optional<EndReason> end;
};

inline std::vector<int32_t> some_prompt(size_t length, uint64_t stream, int32_t vocab) {
  std::vector<int32_t> tokens;
  const Philox philox{.key = 5, .stream = stream};
  for (size_t i = 0; i < length; ++i)
    tokens.push_back(static_cast<int32_t>(philox(i)[0] % static_cast<uint32_t>(vocab)));
  return tokens;
}

// Copies a part of a parameter of the complete model, in the box's type.
inline void copy_param(const TensorRow& row, std::span<const float> params, const TensorBox& box,
                       std::span<float> block) {
  const CommonRuns runs(whole_box(row), box);
  for (int64_t run = 0; run < runs.count(); ++run) {
    const auto [from, to] = runs.at(run);
    const auto values =
        params.subspan(static_cast<size_t>(row.offset + from), static_cast<size_t>(runs.length()));
    narrow(values, box.dtype == DType::kF32 ? StoredType::kF32 : StoredType::kBf16,
           reinterpret_cast<char*>(block.data()) +
               static_cast<size_t>(box.offset + to) * dtype_bytes(box.dtype));
  }
}

// Returns a decoder with the parameters, and the scaling state, of the complete model.
inline std::unique_ptr<Decoder> make_decoder(const ModelConfig& config,
                                             std::span<const float> params, DecoderSize size,
                                             DType dtype, std::span<const TestAdapter> adapters,
                                             std::unique_ptr<TensorRanks> ranks) {
  size.staging_bytes = 1 << 10;  // a GPU gets the parameters in several pieces
  const auto cache = cache_size(config, dtype, size);
  EXPECT_TRUE(cache.ok()) << cache.status();
  std::vector<LoraConfig> loras;
  for (const TestAdapter& adapter : adapters) loras.push_back(adapter.model.lora);
  auto decoder = std::make_unique<Decoder>(config, dtype, *cache, size, loras, device_of_tests(),
                                           std::move(ranks));
  const auto status =
      decoder->read_params([&](const std::vector<TensorBox>& boxes, std::span<float> block) {
        const std::vector<TensorRow> rows = decoder->plan().rows();
        for (const TensorBox& box : boxes) {
          const auto row = std::ranges::find(rows, box.tensor, &TensorRow::name);
          EXPECT_NE(row, rows.end()) << box.tensor;
          copy_param(*row, params, box, block);
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < adapters.size(); ++i)
    decoder->load_adapter(i, adapters[i].table, adapters[i].values);
  return decoder;
}

class TestEngine {
 public:
  TestEngine(const ModelConfig& config, std::span<const float> params, const DecoderSize& size,
             DType dtype = DType::kF32, std::span<const TestAdapter> adapters = {},
             std::unique_ptr<TensorRanks> ranks = nullptr)
      : engine(make_decoder(config, params, size, dtype, adapters, std::move(ranks)),
               config.vocab_size) {}

  TestEngine(std::unique_ptr<Decoder> decoder, int32_t vocab) : engine(std::move(decoder), vocab) {}

  RequestId submit(const GenerationRequest& request) {
    const auto id = engine.submit(request);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  void step() {
    auto events = engine.step();
    ASSERT_TRUE(events.ok()) << events.status();
    for (GenerationEvent& event : *events) {
      Result& result = results[event.request];
      EXPECT_FALSE(result.end.has_value()) << "an event after the end";
      std::ranges::move(event.prompt_logprobs, std::back_inserter(result.prompt));
      if (event.token) result.output.push_back(*event.token);
      if (event.logprobs) result.logprobs.push_back(*event.logprobs);
      result.end = event.end;
    }
  }
  void run() {
    for (int i = 0; i < 10'000 && !engine.is_idle(); ++i) step();
    EXPECT_TRUE(engine.is_idle());
    EXPECT_EQ(engine.stats().free_blocks, engine.stats().blocks);
  }

  Engine engine;
  std::map<RequestId, Result> results;
};

}  // namespace muster::trainer

// The side of bench/decode.py that runs our code: greedy decoding of a Hugging Face folder.
//
//   decode FOLDER THREADS POSITIONS_MAX float32|bfloat16
//
// Prints {"ready": true} when the weights are loaded. Then, for each line on stdin:
//   generate P N   reads a prompt of P tokens and generates N more: {"prefill_seconds": x,
//                  "decode_seconds": [one per token except the first, which the prompt produced],
//                  "tokens": [N]}
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "common/time/time.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/generation/engine.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;

// The prompt for every program: ids without a tokenizer, the same everywhere.
constexpr int64_t kPromptStride = 7919;

Json generate(Engine& engine, int32_t vocab, int32_t prompt, int32_t count) {
  GenerationRequest request{.prompt = {}, .max_tokens = count};
  for (int64_t i = 0; i < prompt; ++i)
    request.prompt.push_back(static_cast<int32_t>((i + 1) * kPromptStride % vocab));
  Json tokens = Json::array(), seconds = Json::array();
  const Instant start = monotonic_now();
  if (const auto id = engine.submit(std::move(request)); !id.ok())
    return {{"error", id.status().message()}};
  Json result;
  for (Instant before = start; !engine.is_idle();) {
    const auto events = engine.step();
    if (!events.ok()) return {{"error", events.status().message()}};
    for (const GenerationEvent& event : *events) {
      if (!event.token) continue;
      const Instant now = monotonic_now();
      if (tokens.empty()) {
        result["prefill_seconds"] = to_seconds(now - start);
      } else {
        seconds.push_back(to_seconds(now - before));
      }
      before = now;
      tokens.push_back(*event.token);
    }
  }
  result["decode_seconds"] = seconds;
  result["tokens"] = tokens;
  return result;
}

absl::StatusOr<std::unique_ptr<Decoder>> load(const std::string& folder, DType dtype,
                                              const DecoderSize& size) {
  const auto source = open_hugging_face(folder);
  if (!source.ok()) return source.status();
  const ModelConfig& model = (*source)->description().model;
  const auto cache = cache_size(model, dtype, size);
  if (!cache.ok()) return cache.status();
  auto decoder = std::make_unique<Decoder>(model, dtype, *cache, size);
  const auto status =
      decoder->read_params([&](const std::vector<TensorBox>& boxes, std::span<float> block) {
        return (*source)->read_boxes(boxes, block);
      });
  if (!status.ok()) return status;
  return decoder;
}

int serve(const std::string& folder, int32_t threads, int32_t positions, DType dtype) {
  auto decoder =
      load(folder, dtype, {.context = positions, .sequences_max = 1, .threads = threads});
  if (!decoder.ok()) {
    std::cerr << decoder.status().message() << std::endl;
    return 1;
  }
  const int32_t vocab = (*decoder)->plan().model.vocab_size;
  Engine engine(*std::move(decoder), vocab);
  std::cout << Json{{"ready", true}} << std::endl;
  std::string command;
  int32_t prompt = 0, count = 0;
  while (std::cin >> command >> prompt >> count)
    std::cout << generate(engine, vocab, prompt, count) << std::endl;
  return 0;
}

}  // namespace
}  // namespace muster::trainer

int main(int argc, char** argv) {
  const int threads = argc > 2 ? std::atoi(argv[2]) : 0;
  const int positions = argc > 3 ? std::atoi(argv[3]) : 0;
  const std::string type = argc > 4 ? argv[4] : "";
  if (argc != 5 || threads < 1 || positions < 1 || (type != "float32" && type != "bfloat16")) {
    std::cerr << "usage: decode FOLDER THREADS POSITIONS_MAX float32|bfloat16" << std::endl;
    return 2;
  }
  return muster::trainer::serve(
      argv[1], threads, positions,
      type == "bfloat16" ? muster::trainer::DType::kBf16 : muster::trainer::DType::kF32);
}

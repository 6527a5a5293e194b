// The side of bench/decode.py that runs our code: greedy decoding of a Hugging Face folder.
//
//   decode FOLDER THREADS POSITIONS_MAX float32|bfloat16
//
// Prints {"ready": true} when the weights are loaded. Then, for each line on stdin:
//   generate P N   reads a prompt of P tokens and generates N more: {"prefill_seconds": x,
//                  "decode_seconds": [one per token except the first, which the prompt produced],
//                  "tokens": [N]}
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/time/time.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/model/plan_builder.h"
#include "trainer_core/model/transformer.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;

constexpr int32_t kChunk = 256;
// The prompt for every program: ids without a tokenizer, the same everywhere.
constexpr int64_t kPromptStride = 7919;

class Generation {
 public:
  Generation(const ModelConfig& model, int32_t positions, int32_t threads, DType dtype)
      : model_config_(model),
        ops_(cpu_ops(threads)),
        plan_(plan_decoder(model, 1, kChunk, positions, threads, dtype)),
        arena_(plan_.memory),
        logits_(static_cast<size_t>(model.vocab_size)) {}

  absl::Status load(const std::string& folder) {
    const auto source = open_hugging_face(folder);
    if (!source.ok()) return source.status();
    const absl::Status status = load_parameters(**source, loading_params(plan_, arena_));
    if (status.ok()) round_loaded_params(plan_, arena_);
    return status;
  }

  Json run(int32_t prompt, int32_t count) {
    restart();
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < prompt; ++i)
      ids.push_back(static_cast<int32_t>((i + 1) * kPromptStride % model_config_.vocab_size));
    const Instant start = monotonic_now();
    for (std::span<const int32_t> rest = ids; !rest.empty();) {
      const size_t some = std::min(rest.size(), size_t{kChunk});
      model_->extend(rest.first(some), logits_.data());
      rest = rest.subspan(some);
    }
    Json result{{"prefill_seconds", to_seconds(monotonic_now() - start)}};
    Json seconds = Json::array(), tokens = Json::array();
    for (int32_t i = 0; i < count; ++i) {
      const Instant before = monotonic_now();
      const int32_t next = likeliest();
      tokens.push_back(next);
      if (i + 1 == count) break;
      model_->extend({&next, 1}, logits_.data());
      seconds.push_back(to_seconds(monotonic_now() - before));
    }
    result["decode_seconds"] = seconds;
    result["tokens"] = tokens;
    return result;
  }

 private:
  // Clears the cache; the parameters stay in place.
  void restart() { model_ = std::make_unique<Transformer>(plan_, arena_, *ops_); }
  int32_t likeliest() const {
    return static_cast<int32_t>(std::ranges::max_element(logits_) - logits_.begin());
  }

  ModelConfig model_config_;
  std::unique_ptr<Ops> ops_;
  TransformerPlan plan_;
  Arena arena_;
  std::unique_ptr<Transformer> model_;
  std::vector<float> logits_;  // (V)
};

int serve(const std::string& folder, int32_t threads, int32_t positions, DType dtype) {
  const auto config = read_hugging_face_config(folder);
  if (!config.ok()) {
    std::cerr << config.status().message() << std::endl;
    return 1;
  }
  Generation generation(config->model, positions, threads, dtype);
  if (const auto status = generation.load(folder); !status.ok()) {
    std::cerr << status.message() << std::endl;
    return 1;
  }
  std::cout << Json{{"ready", true}} << std::endl;
  std::string command;
  int32_t prompt = 0, count = 0;
  while (std::cin >> command >> prompt >> count)
    std::cout << generation.run(prompt, count) << std::endl;
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

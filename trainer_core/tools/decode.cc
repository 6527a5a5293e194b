#include "trainer_core/tools/decode.h"

#include <algorithm>
#include <memory>
#include <ostream>
#include <span>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/model/plan_builder.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/ops/ops.h"
#include "trainer_core/startup/load_tokenizer.h"

namespace muster::trainer {
namespace {

// The number of prompt tokens per pass: enough for GEMMs at full speed.
constexpr int32_t kPrefillChunk = 256;

// A model with a cache for one sequence of `capacity` tokens. Not movable.
class Decoder {
 public:
  Decoder(const TrainConfig& config, int32_t capacity, int32_t threads)
      : ops_(cpu_ops(threads)),
        plan_(plan_decoder(config.model, 1, kPrefillChunk, capacity, threads,
                           config.activation_type())),
        arena_(plan_.memory),
        logits_(static_cast<size_t>(config.model.vocab_size)) {}
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  absl::Status load(const std::string& checkpoint) {
    if (auto status = restore_parameters(checkpoint, plan_.rows(), loading_params(plan_, arena_));
        !status.ok())
      return status;
    round_loaded_params(plan_, arena_);
    return absl::OkStatus();
  }

  // Called once, after load().
  std::vector<int32_t> generate(std::span<const int32_t> prompt, const DecodeOptions& options,
                                const Tokenizer& tokenizer) {
    // Ids beyond the vocabulary of the tokenizer are padding of the model's vocabulary, not tokens.
    const auto of_tokens = std::span(logits_).first(static_cast<size_t>(tokenizer.vocab_size()));
    Transformer model(plan_, arena_, *ops_);
    while (!prompt.empty()) {
      const size_t count = std::min(prompt.size(), size_t{kPrefillChunk});
      model.extend(prompt.first(count), logits_.data());
      prompt = prompt.subspan(count);
    }
    std::vector<int32_t> output;
    for (;;) {
      const int32_t next = sample_token(of_tokens, options.sampling, output.size());
      if (next == tokenizer.eos_id()) break;
      output.push_back(next);
      if (model.length() == plan_.cache_capacity) break;
      model.extend({&next, 1}, logits_.data());
    }
    return output;
  }

 private:
  std::unique_ptr<Ops> ops_;
  TransformerPlan plan_;
  Arena arena_;
  std::vector<float> logits_;  // (V)
};

// Returns the number of tokens that the model reads: the last output token is not read. A model
// with learned positions is limited to their number.
int32_t capacity(const ModelConfig& model, size_t prompt, int32_t max_tokens) {
  const int32_t wanted = static_cast<int32_t>(prompt) + max_tokens - 1;
  return model.learns_positions() ? std::min(wanted, model.trainable_position_size) : wanted;
}

}  // namespace

absl::StatusOr<std::string> decode(const TrainConfig& config, const DecodeOptions& options) {
  if (config.tokenizer_path.empty())
    return absl::InvalidArgumentError(
        "the run has no tokenizer (its tokenizer_path is empty): give --tokenizer FILE, a "
        "SentencePiece model, a tokenizer.json or a tiktoken file");
  if (options.max_tokens < 1 || options.max_tokens > kDecodeTokensMax) {
    return absl::InvalidArgumentError(absl::StrCat("--max-tokens is ", options.max_tokens,
                                                   "; it must be 1 to ", kDecodeTokensMax));
  }
  auto tokenizer = load_tokenizer(config);
  if (!tokenizer.ok()) return tokenizer.status();
  for (const std::string& note : (*tokenizer)->notes()) {
    if (options.notes != nullptr)
      *options.notes << "muster: " << config.tokenizer_path << ": " << note << std::endl;
  }
  auto prompt = (*tokenizer)->encode(options.prompt);
  if (!prompt.ok()) return prompt.status();
  if (prompt->size() > static_cast<size_t>(kDecodeTokensMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", prompt->size(), " tokens; at most ", kDecodeTokensMax, " are decoded"));
  }
  const int32_t eos_id = (*tokenizer)->eos_id();
  // A document in shards begins with its own first token (data/samples.h).
  const bool begins_after_eos = config.dataset_type != DatasetType::kShards || prompt->empty();
  if (eos_id >= 0 && begins_after_eos) prompt->insert(prompt->begin(), eos_id);
  if (prompt->empty()) return absl::InvalidArgumentError("--prompt is empty");
  if (config.model.learns_positions() &&
      prompt->size() > static_cast<size_t>(config.model.trainable_position_size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", prompt->size(), " tokens; the model has learned positions for ",
        config.model.trainable_position_size, " (trainable_position_size)"));
  }
  Decoder decoder(config, capacity(config.model, prompt->size(), options.max_tokens),
                  options.threads);
  if (auto status = decoder.load(options.checkpoint); !status.ok()) return status;
  return (*tokenizer)->decode(decoder.generate(*prompt, options, **tokenizer));
}

}  // namespace muster::trainer

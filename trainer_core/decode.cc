#include "trainer_core/decode.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/data/tokenizer.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {
namespace {

// The first length of the window; it doubles as the text grows.
constexpr int32_t kFirstWindow = 32;

// The model over one sequence of at most `length` tokens. Not movable.
class Window {
 public:
  Window(const TrainConfig& config, int32_t length, int32_t threads, Ops& ops)
      : length_(length),
        plan_(plan_transformer(config.model, 1, length, RematPolicy::kNone, /*training=*/false,
                               threads)),
        arena_(plan_.memory),
        model_(plan_, arena_, ops) {}
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  int32_t length() const { return length_; }
  const TransformerPlan& plan() const { return plan_; }
  Transformer& model() { return model_; }

 private:
  int32_t length_;
  TransformerPlan plan_;
  Arena arena_;
  Transformer model_;
};

class Decoder {
 public:
  Decoder(const TrainConfig& config, const DecodeOptions& options)
      : config_(config), options_(options), ops_(cpu_ops(options.threads)) {}

  absl::StatusOr<std::vector<int32_t>> generate(std::vector<int32_t> tokens, int32_t eos_id) {
    window_ = std::make_unique<Window>(config_, window_length(tokens.size() + 1), options_.threads,
                                       *ops_);
    if (auto status = restore_parameters(options_.checkpoint, rows_of(window_->plan().params),
                                         window_->model().params());
        !status.ok())
      return status;
    std::vector<int32_t> output;
    while (output.size() < static_cast<size_t>(options_.max_tokens) && has_room(tokens.size())) {
      const int32_t next = next_token(tokens, output.size());
      if (next == eos_id) break;
      output.push_back(next);
      tokens.push_back(next);
    }
    return output;
  }

 private:
  // A model with learned positions has no more of them.
  bool has_room(size_t tokens) const {
    return config_.model.has_rope() ||
           tokens <= static_cast<size_t>(config_.model.trainable_position_size);
  }

  int32_t window_length(size_t tokens) const {
    int32_t length = kFirstWindow;
    while (static_cast<size_t>(length) < tokens) length *= 2;
    return config_.model.has_rope() ? length
                                    : std::min(length, config_.model.trainable_position_size);
  }

  int32_t next_token(const std::vector<int32_t>& tokens, uint64_t position) {
    if (tokens.size() > static_cast<size_t>(window_->length())) grow(tokens.size());
    std::vector<int32_t> padded(tokens);
    padded.resize(static_cast<size_t>(window_->length()), 0);
    logits_.resize(static_cast<size_t>(config_.model.vocab_size));
    window_->model().logits(padded, static_cast<int32_t>(tokens.size()) - 1, logits_.data());
    return sample_token(logits_, options_.sampling, position);
  }

  void grow(size_t tokens) {
    auto larger = std::make_unique<Window>(config_, window_length(tokens), options_.threads, *ops_);
    std::ranges::copy(window_->model().params(), larger->model().params().begin());
    window_ = std::move(larger);
  }

  const TrainConfig& config_;
  const DecodeOptions& options_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Window> window_;
  std::vector<float> logits_;  // (V)
};

}  // namespace

absl::StatusOr<std::string> decode(const TrainConfig& config, const DecodeOptions& options) {
  if (config.tokenizer_path.empty())
    return absl::InvalidArgumentError(
        "tokenizer_path is empty; decode needs the SentencePiece model");
  if (options.max_tokens < 1 || options.max_tokens > kDecodeTokensMax) {
    return absl::InvalidArgumentError(absl::StrCat("--max-tokens is ", options.max_tokens,
                                                   "; it must be 1 to ", kDecodeTokensMax));
  }
  auto tokenizer = Tokenizer::load(config.tokenizer_path);
  if (!tokenizer.ok()) return tokenizer.status();
  if ((*tokenizer)->vocab_size() != config.model.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer ", config.tokenizer_path, " has a vocabulary of ", (*tokenizer)->vocab_size(),
        ", but vocab_size=", config.model.vocab_size, "; they must be equal"));
  }
  auto prompt = (*tokenizer)->encode(options.prompt);
  if (!prompt.ok()) return prompt.status();
  if (prompt->size() > static_cast<size_t>(kDecodeTokensMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", prompt->size(), " tokens; at most ", kDecodeTokensMax, " are decoded"));
  }
  const int32_t eos_id = (*tokenizer)->eos_id();
  if (eos_id >= 0) prompt->insert(prompt->begin(), eos_id);
  if (prompt->empty()) return absl::InvalidArgumentError("--prompt is empty");
  if (!config.model.has_rope() &&
      prompt->size() > static_cast<size_t>(config.model.trainable_position_size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", prompt->size(), " tokens; the model has learned positions for ",
        config.model.trainable_position_size, " (trainable_position_size)"));
  }
  auto output = Decoder(config, options).generate(std::move(*prompt), eos_id);
  if (!output.ok()) return output.status();
  return (*tokenizer)->decode(*output);
}

absl::StatusOr<std::string> find_checkpoint(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path + "/" + kManifestFile, error)) {
    auto info = verify_checkpoint(path, /*checksums=*/true);
    if (!info.ok())
      return absl::DataLossError(absl::StrCat("checkpoint ", path, ": ", info.status().message()));
    return path;
  }
  std::vector<std::string> notes;
  auto newest = CheckpointStore(path, -1).newest(notes);
  if (!newest.ok()) return newest.status();
  if (!newest->has_value())
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", path));
  return (*newest)->folder;
}

}  // namespace muster::trainer

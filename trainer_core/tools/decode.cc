#include "trainer_core/tools/decode.h"

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/generation/engine.h"
#include "trainer_core/generation/prompt.h"
#include "trainer_core/generation/text_stream.h"
#include "trainer_core/startup/device_reserve.h"
#include "trainer_core/startup/load_tokenizer.h"

namespace muster::trainer {
namespace {

// The number of prompts that are computed at the same time. Their matrices are read once for all of
// them; more of them gain little on a CPU.
constexpr size_t kDecodedAtOnce = 32;

absl::Status check_bos(const DecodeOptions& options, int32_t vocab_size) {
  if (!options.bos_id || (*options.bos_id >= 0 && *options.bos_id < vocab_size))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--bos-id is ", *options.bos_id, "; the model has the tokens 0 to ", vocab_size - 1));
}

absl::StatusOr<std::vector<int32_t>> tokens_after(int32_t bos_id, const Tokenizer& tokenizer,
                                                  std::string_view prompt) {
  auto tokens = tokenizer.encode(prompt);
  if (tokens.ok()) tokens->insert(tokens->begin(), bos_id);
  return tokens;
}

// Removes the beginning of a prompt that is too long, as lm-evaluation-harness does.
void shorten(const DecodeOptions& options, std::vector<int32_t>& tokens) {
  if (!options.length) return;
  const auto kept = static_cast<size_t>(*options.length - options.max_tokens);
  if (tokens.size() > kept)
    tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(kept));
}

absl::StatusOr<std::vector<std::vector<int32_t>>> tokens_of_prompts(
    const TrainConfig& config, const Tokenizer& tokenizer, const DecodeOptions& options,
    const std::vector<NamedAdapter>& adapters, const std::vector<int32_t>& adapter_of) {
  const auto training = training_of_checkpoint(options.checkpoint);
  if (!training.ok()) return training.status();
  const auto starts = starts_of_models(*training, tokenizer, adapters);
  if (!starts.ok()) return starts.status();
  std::vector<std::vector<int32_t>> all;
  for (size_t i = 0; i < options.prompts.size(); ++i) {
    const TextStart& start = (*starts)[static_cast<size_t>(adapter_of[i] + 1)];
    const int32_t bos_id = options.bos_id.value_or(options.add_bos ? start.id : -1);
    auto tokens = bos_id >= 0 ? tokens_after(bos_id, tokenizer, options.prompts[i])
                              : prompt_tokens(start, tokenizer, options.prompts[i]);
    const std::string name = options.lines.empty()
                                 ? "the prompt"
                                 : absl::StrCat("the prompt in line ", options.lines[i]);
    if (!tokens.ok()) {
      return options.lines.empty()
                 ? tokens.status()
                 : absl::Status(tokens.status().code(),
                                absl::StrCat(name, ": ", tokens.status().message()));
    }
    shorten(options, *tokens);
    const auto count = static_cast<int32_t>(tokens->size());
    if (count > kDecodeTokensMax) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has ", count, " tokens; at most ",
                                                     kDecodeTokensMax, " are decoded"));
    }
    if (config.model.learns_positions() && count > config.model.trainable_position_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has ", count, " tokens; the model has learned positions for ",
                       config.model.trainable_position_size, " (trainable_position_size)"));
    }
    all.push_back(*std::move(tokens));
  }
  return all;
}

// Returns the adapter of each prompt, -1 for the model alone.
absl::StatusOr<std::vector<int32_t>> adapters_of_prompts(const DecodeOptions& options) {
  if (options.adapter_names.empty())
    return std::vector(options.prompts.size(), options.adapters.empty() ? -1 : 0);
  std::vector<int32_t> all;
  for (size_t i = 0; i < options.adapter_names.size(); ++i) {
    const std::string& name = options.adapter_names[i];
    const auto found = std::ranges::find(options.adapters, name, &AdapterFolder::name);
    if (!name.empty() && found == options.adapters.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the prompt in line ", options.lines[i], " has the adapter ", name,
          options.adapters.empty() ? ", but there is no --adapter NAME=DIR"
                                   : absl::StrCat("; there are ", names_of(options.adapters))));
    }
    all.push_back(name.empty() ? -1 : static_cast<int32_t>(found - options.adapters.begin()));
  }
  return all;
}

// Returns the maximum number of tokens that the model reads of one prompt and its output: the last
// output token is not read. A model with learned positions is limited to their number.
int32_t context_of(const ModelConfig& model, const std::vector<std::vector<int32_t>>& prompts,
                   int32_t max_tokens) {
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, prompt.size());
  const int32_t wanted = static_cast<int32_t>(longest) + max_tokens - 1;
  return model.learns_positions() ? std::min(wanted, model.trainable_position_size) : wanted;
}

// The output of a prompt.
struct DecodedPrompt {
  size_t prompt;
  TextStream stream;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> decode(const TrainConfig& config,
                                                const DecodeOptions& options) {
  if (config.tokenizer_path.empty())
    return absl::InvalidArgumentError(
        "the run has no tokenizer (its tokenizer_path is empty): give --tokenizer FILE, a "
        "SentencePiece model, a tokenizer.json or a tiktoken file");
  if (options.max_tokens < 1 || options.max_tokens > kDecodeTokensMax) {
    return absl::InvalidArgumentError(absl::StrCat("--max-tokens is ", options.max_tokens,
                                                   "; it must be 1 to ", kDecodeTokensMax));
  }
  const auto tokenizer = load_tokenizer(config);
  if (!tokenizer.ok()) return tokenizer.status();
  for (const std::string& note : (*tokenizer)->notes()) {
    if (options.notes != nullptr)
      *options.notes << "muster: " << config.tokenizer_path << ": " << note << std::endl;
  }
  if (auto status = check_bos(options, config.model.vocab_size); !status.ok()) return status;
  if (options.length && *options.length <= options.max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("--length is ", *options.length, "; it must be above --max-tokens (",
                     options.max_tokens, "), because the prompt needs room"));
  }
  const auto adapter_of = adapters_of_prompts(options);
  if (!adapter_of.ok()) return adapter_of.status();
  const auto adapters = open_served_adapters(options.adapters, options.checkpoint, config.model);
  if (!adapters.ok()) return adapters.status();
  const auto prompts = tokens_of_prompts(config, **tokenizer, options, *adapters, *adapter_of);
  if (!prompts.ok()) return prompts.status();
  const size_t at_once = std::clamp<size_t>(prompts->size(), 1, kDecodedAtOnce);
  auto decoder = Decoder::load(config, options.checkpoint,
                               {.context = context_of(config.model, *prompts, options.max_tokens),
                                .sequences_max = static_cast<int32_t>(at_once),
                                .int8_cache = options.int8_cache,
                                .threads = options.threads,
                                .tensor_ranks = options.tensor_ranks,
                                .device_reserve_bytes = static_cast<int64_t>(kKernelCode.bytes)},
                               *adapters, options.backend);
  if (absl::IsResourceExhausted(decoder.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat(decoder.status().message(),
                     ". Use --int8-cache, a smaller --max-tokens, or shorter prompts (--length)"));
  }
  if (!decoder.ok()) return decoder.status();
  for (const std::string& note : (*decoder)->notes()) {
    if (options.notes != nullptr) *options.notes << "muster: " << note << std::endl;
  }
  Engine engine(*std::move(decoder), (*tokenizer)->vocab_size());
  std::map<RequestId, DecodedPrompt> outputs;
  std::vector<std::string> texts(prompts->size());
  const int32_t eos_id = (*tokenizer)->eos_id();
  for (size_t i = 0; i < prompts->size(); ++i) {
    const std::vector<int32_t>& prompt = (*prompts)[i];
    const std::vector<std::string>& stops =
        options.prompt_stops.empty() ? options.stops : options.prompt_stops[i];
    SamplingOptions sampling = options.sampling;
    if (!options.seeds.empty()) sampling.seed = options.seeds[i];
    const auto id =
        engine.submit({.prompt = prompt,
                       .max_tokens = options.max_tokens,
                       .sampling = sampling,
                       .stop_tokens = eos_id >= 0 ? std::vector{eos_id} : std::vector<int32_t>(),
                       .adapter = (*adapter_of)[i]});
    if (!id.ok()) return id.status();
    outputs.emplace(*id, DecodedPrompt{i, TextStream(**tokenizer, prompt, stops)});
  }
  while (!engine.is_idle()) {
    const auto events = engine.step();
    if (!events.ok()) return events.status();
    for (const GenerationEvent& event : *events) {
      DecodedPrompt& output = outputs.at(event.request);
      std::string piece = event.token ? output.stream.push(*event.token) : "";
      if (event.end) piece += output.stream.finish();
      if (output.stream.stopped()) engine.cancel(event.request);
      if (options.on_text && !piece.empty()) options.on_text(output.prompt, piece);
      texts[output.prompt] += piece;
    }
  }
  return texts;
}

}  // namespace muster::trainer

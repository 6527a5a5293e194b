// The command `decode`.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/text/escape.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/base/mesh_rules.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/commands.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/load_config.h"
#include "trainer_core/tools/decode.h"

namespace muster::trainer {
namespace {

// The maximum number and the maximum total size of the prompts of a file.
constexpr size_t kPromptsMax = 100'000;
constexpr size_t kPromptBytesMax = size_t{64} << 20;
constexpr size_t kStopsMax = 64;  // each is searched in the text of each token

// Reads the stop strings of a prompt: one, or a list.
absl::Status add_stops(const nlohmann::json& entry, DecodeOptions& options) {
  const auto stop = entry.find("stop");
  if (stop == entry.end()) {
    options.prompt_stops.push_back(options.stops);
    return absl::OkStatus();
  }
  const nlohmann::json list = stop->is_array() ? *stop : nlohmann::json::array({*stop});
  std::vector<std::string>& stops = options.prompt_stops.emplace_back();
  for (const nlohmann::json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty() ||
        list.size() > kStopsMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the field \"stop\" is ", show_json(*stop),
          "; it must be a text that ends the output, or a list of at most ", kStopsMax));
    }
    stops.push_back(text.get<std::string>());
  }
  return absl::OkStatus();
}

// Reads a line of JSON: an object with "prompt", and may have "seed", "stop" and "adapter".
absl::Status add_json_prompt(const std::string& line, DecodeOptions& options) {
  const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object()) return absl::InvalidArgumentError("no JSON object");
  for (const auto& [name, value] : entry.items())
    if (name != "prompt" && name != "seed" && name != "stop" && name != "adapter")
      return absl::InvalidArgumentError(
          absl::StrCat("unknown field \"", name, "\"; there are prompt, seed, stop and adapter"));
  const auto prompt = entry.find("prompt"), seed = entry.find("seed");
  const auto adapter = entry.find("adapter");
  if (adapter != entry.end() && !adapter->is_null() && (!adapter->is_string() || *adapter == ""))
    return absl::InvalidArgumentError(
        absl::StrCat("the field \"adapter\" is ", show_json(*adapter),
                     "; it must be the name of an --adapter, or null for the model alone"));
  if (prompt == entry.end())
    return absl::InvalidArgumentError("the field \"prompt\" is missing; it must be a string");
  if (!prompt->is_string())
    return absl::InvalidArgumentError(
        absl::StrCat("the field \"prompt\" is ", show_json(*prompt), "; it must be a string"));
  if (seed != entry.end() && !seed->is_number_unsigned())
    return absl::InvalidArgumentError(absl::StrCat("the field \"seed\" is ", show_json(*seed),
                                                   "; it must be a whole number of at least 0"));
  options.prompts.push_back(prompt->get<std::string>());
  options.seeds.push_back(seed == entry.end() ? options.sampling.seed : seed->get<uint64_t>());
  std::string name = options.adapters.empty() ? "" : options.adapters.front().name;
  if (adapter != entry.end()) name = adapter->is_null() ? "" : adapter->get<std::string>();
  options.adapter_names.push_back(std::move(name));
  if (auto status = add_stops(entry, options); !status.ok()) return status;
  return absl::OkStatus();
}

// Reads a file with one prompt per line; a file *.jsonl has JSON. Ignores empty lines.
absl::Status read_prompts(const std::string& path, DecodeOptions& options) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("--prompts ", path, ": no such file"));
  const bool is_json = path.ends_with(".jsonl");
  std::vector<std::string>& prompts = options.prompts;
  prompts.clear();
  size_t bytes = 0;
  int32_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    bytes += line.size();
    if (prompts.size() == kPromptsMax || bytes > kPromptBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--prompts ", path, ": more than ", kPromptsMax, " prompts or ",
                       kPromptBytesMax >> 20, " MiB; split the file"));
    }
    options.lines.push_back(number);
    if (!is_json) {
      prompts.push_back(std::move(line));
    } else if (auto status = add_json_prompt(line, options); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--prompts ", path, ":", number, ": ", status.message()));
    }
  }
  if (prompts.empty())
    return absl::InvalidArgumentError(absl::StrCat("--prompts ", path, ": the file has no prompt"));
  return absl::OkStatus();
}

absl::StatusOr<DecodeOptions> decode_options(const CommandLine& line, const TrainConfig& config) {
  DecodeOptions options;
  auto folder = find_checkpoint(line.text("checkpoint", config.checkpoint_directory));
  if (!folder.ok()) return folder.status();
  options.checkpoint = *folder;
  options.prompts = {line.text("prompt", "I love to")};
  options.threads = threads_per_rank(config, RankEnv());
  const auto max_tokens = line.integer("max-tokens", 64, 1, kDecodeTokensMax);
  const auto temperature = line.number("temperature", 0, 0, 100);
  const auto top_k = line.integer("top-k", 0, 0, std::numeric_limits<int32_t>::max());
  const auto top_p = line.number("top-p", 1, 0, 1);
  const auto min_p = line.number("min-p", 0, 0, 1);
  const auto repetition = line.number("repetition-penalty", 1, 0.01, 100);
  const auto seed = line.integer("seed", 0, 0, std::numeric_limits<int64_t>::max());
  const auto bos_id = line.integer("bos-id", 0, 0, std::numeric_limits<int32_t>::max());
  const auto length = line.integer("length", 1, 1, 2 * kDecodeTokensMax);
  const auto tensor = line.integer("tensor-parallel", 1, 1, kTensorRanksMax);
  for (const absl::Status& status :
       {max_tokens.status(), temperature.status(), top_k.status(), top_p.status(), min_p.status(),
        repetition.status(), seed.status(), bos_id.status(), length.status(), tensor.status()}) {
    if (!status.ok()) return status;
  }
  options.max_tokens = static_cast<int32_t>(*max_tokens);
  options.tensor_ranks = static_cast<int32_t>(*tensor);
  if (config.threads > 0) options.threads = config.threads * options.tensor_ranks;
  options.sampling = {.repetition_penalty = *repetition,
                      .temperature = *temperature,
                      .top_k = static_cast<int32_t>(*top_k),
                      .top_p = *top_p,
                      .min_p = *min_p,
                      .seed = static_cast<uint64_t>(*seed)};
  if (line.has("bos-id")) options.bos_id = static_cast<int32_t>(*bos_id);
  options.add_bos = line.has("add-bos");
  if (line.has("length")) options.length = static_cast<int32_t>(*length);
  if (line.has("stop")) options.stops = {line.text("stop")};
  options.int8_cache = line.has("kv-cache");
  if (options.int8_cache && line.text("kv-cache") != "int8")
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-cache is ", line.text("kv-cache"), "; it must be int8"));
  if (line.has("adapters")) {
    // The command-line tool passes them as a list in JSON.
    const auto words = nlohmann::json::parse(line.text("adapters"), nullptr, false);
    if (!words.is_array() || !std::ranges::all_of(words, &nlohmann::json::is_string))
      return absl::InvalidArgumentError(absl::StrCat("--adapters is ", line.text("adapters"),
                                                     "; it must be a list of NAME=DIR in JSON"));
    auto adapters = parse_adapters(words.get<std::vector<std::string>>(), "");
    if (!adapters.ok()) return adapters.status();
    options.adapters = *std::move(adapters);
  }
  if (line.has("prompts"))
    if (auto status = read_prompts(line.text("prompts"), options); !status.ok()) return status;
  if (options.adapters.size() > 1 && options.adapter_names.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("--adapter is given ", options.adapters.size(),
                     " times, but all prompts would use the first one: give one adapter, or name "
                     "them in the lines of --prompts FILE.jsonl"));
  return options;
}

// Prints the output of several prompts in their order, that of a single prompt piece by piece.
class Printer {
 public:
  // A terminal gets escaped text, because the text of a model or a prompt must not send control
  // sequences to it. Other programs get the raw bytes.
  explicit Printer(const DecodeOptions& options)
      : options_(options), escaped_(isatty(STDOUT_FILENO) == 1) {
    if (options.prompts.size() == 1) begin(0);
  }

  void piece(size_t prompt, std::string_view text) {
    if (options_.prompts.size() == 1 && prompt == 0) print(text);
  }
  void end(const std::vector<std::string>& texts) {
    if (texts.size() == 1) return print("`\n");
    for (size_t i = 0; i < texts.size(); ++i) {
      begin(i);
      print(texts[i]);
      print("`\n");
    }
  }
  ExitCode code() const { return code_; }

 private:
  void begin(size_t prompt) { print(absl::StrCat("Input `", options_.prompts[prompt], "` -> `")); }
  void print(std::string_view text) {
    if (code_ != ExitCode::kOk) return;  // the error has been reported
    code_ = print_result(escaped_ ? escape_controls(text) : std::string(text));
  }

  const DecodeOptions& options_;
  bool escaped_;
  ExitCode code_ = ExitCode::kOk;
};

std::string as_json(const DecodeOptions& options, const std::vector<std::string>& texts,
                    bool lines) {
  std::string all;
  for (size_t i = 0; i < texts.size(); ++i) {
    nlohmann::json out = {
        {"prompt", options.prompts[i]}, {"text", texts[i]}, {"checkpoint", options.checkpoint}};
    if (!options.adapters.empty()) {
      const std::string& name =
          options.adapter_names.empty() ? options.adapters.front().name : options.adapter_names[i];
      out["adapter"] = name.empty() ? nlohmann::json() : nlohmann::json(name);
    }
    // A prompt need not be UTF-8.
    absl::StrAppend(
        &all, out.dump(lines ? -1 : 2, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
  }
  return all;
}

}  // namespace

absl::StatusOr<TrainConfig> checkpoint_config(const CommandLine& line) {
  absl::StatusOr<TrainConfig> config;
  if (line.has("config")) {
    config = load_config(line.text("config"));
  } else {
    if (!line.has("checkpoint"))
      return absl::InvalidArgumentError("give --checkpoint FOLDER, or --config FILE --latest");
    config = training_of_checkpoint(line.text("checkpoint"));
  }
  if (config.ok() && line.has("tokenizer")) {
    config->tokenizer_path = line.text("tokenizer");
    config->tokenizer_type.clear();  // the type is that of the training's tokenizer
  }
  return config;
}

ExitCode decode_command(std::span<const std::string_view> arguments) {
  // Users call it as `muster decode`, which executes this program.
  const std::string who = "muster: error";
  const auto line = CommandLine::parse(
      arguments,
      {.values = {"config", "checkpoint", "prompt", "prompts", "max-tokens", "temperature",
                  "tokenizer", "top-k", "top-p", "min-p", "repetition-penalty", "seed", "stop",
                  "bos-id", "length", "kv-cache", "adapters", "tensor-parallel", "hardware"},
       .switches = {"latest", "json", "add-bos"}});
  if (!line.ok()) return report(who, line.status());
  const auto config = checkpoint_config(*line);
  if (!config.ok()) return report(who, config.status());
  auto options = decode_options(*line, *config);
  if (!options.ok()) return report(who, options.status());
  // Opened last, because a GPU takes seconds.
  auto chosen = backend_of_option(line->text("hardware", "cpu"), *config, options->threads,
                                  options->tensor_ranks);
  if (!chosen.ok()) return report(who, chosen.status());
  if (!chosen->reason.empty()) std::cerr << "muster: " << chosen->reason << std::endl;
  options->backend = std::move(chosen->backend);
  options->notes = &std::cerr;
  if (line->has("json")) {
    const auto texts = decode(*config, *options);
    if (!texts.ok()) return report(who, texts.status());
    return print_result(as_json(*options, *texts, line->has("prompts")));
  }
  std::optional<Printer> printer;
  options->on_text = [&](size_t prompt, std::string_view text) {
    if (!printer) printer.emplace(*options);
    printer->piece(prompt, text);
  };
  const auto texts = decode(*config, *options);
  if (!texts.ok()) return report(who, texts.status());
  if (!printer) printer.emplace(*options);
  printer->end(*texts);
  return printer->code();
}

}  // namespace muster::trainer

#include "cli/run/converter_flags.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::cli {
namespace {

// The sizes that MaxText's and Saxml's MODEL_PARAMS_DICT assign to a --model-size.
struct ModelSize {
  std::string_view name;
  int32_t layers, query_heads, kv_heads, head_dim, vocab, experts;
};

constexpr ModelSize kModelSizes[] = {
    {"7b", 32, 32, 32, 128, 32'000, 1},           {"13b", 40, 40, 40, 128, 32'000, 1},
    {"70b", 80, 64, 8, 128, 32'000, 1},           {"llama3_8b", 32, 32, 8, 128, 128'256, 1},
    {"llama3_70b", 80, 64, 8, 128, 128'256, 1},   {"llama3_405b_mp8", 126, 128, 8, 128, 128'256, 1},
    {"llama2-7b", 32, 32, 32, 128, 32'000, 1},    {"llama2-13b", 40, 40, 40, 128, 32'000, 1},
    {"llama2-70b", 80, 64, 8, 128, 32'000, 1},    {"llama3-8b", 32, 32, 8, 128, 128'256, 1},
    {"llama3-70b", 80, 64, 8, 128, 128'256, 1},   {"llama3.1-8b", 32, 32, 8, 128, 128'256, 1},
    {"llama3.1-70b", 80, 64, 8, 128, 128'256, 1}, {"llama3.1-405b", 126, 128, 8, 128, 128'256, 1},
    {"llama3.3-70b", 80, 64, 8, 128, 128'256, 1}, {"mistral-7b", 32, 32, 8, 128, 32'000, 1},
    {"mixtral-8x7b", 32, 32, 8, 128, 32'000, 8},  {"mixtral-8x22b", 56, 48, 8, 128, 32'768, 8},
};

// Flags of Pax's converter with sizes, and the keys of --expect with the same meaning.
struct SizeFlag {
  std::string_view flag, key;
};

constexpr SizeFlag kSizeFlags[] = {
    {"num-of-layer", "base_num_decoder_layers"},
    {"num-of-head", "base_num_query_heads"},
    {"head-dim", "head_dim"},
    {"mlp-intermediate-dim", "base_mlp_dim"},
    {"num-gqa-groups", "base_num_kv_heads"},
    {"embed-dim", "base_emb_dim"},
};

// Flags about file layouts, of which there is one here.
constexpr std::string_view kUnusedFlags[] = {
    "direction",         "fw",         "huggingface-checkpoint",
    "kernel-chunk-size", "pax-repeat", "pax-split-qkv",
    "skip-bias",         "skip-ln",    "t5x-fuse-qkv",
    "te-qkv-layout",     "use-ocdbt",  "use-zarr3",
    "weight-only",
};
constexpr std::string_view kSwitches[] = {"pax-repeat", "pax-split-qkv", "skip-bias",
                                          "skip-ln",    "t5x-fuse-qkv",  "use-gated-activations",
                                          "weight-only"};

template <class Names>
bool is_among(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

absl::StatusOr<std::string> expect_model_size(const std::string& name) {
  const auto* const size = std::ranges::find(kModelSizes, std::string_view(name), &ModelSize::name);
  if (size == std::end(kModelSizes)) {
    std::vector<std::string_view> names;
    for (const ModelSize& known : kModelSizes) names.push_back(known.name);
    return absl::InvalidArgumentError(absl::StrCat(
        "--model-size is \"", name, "\"; known sizes are ",
        absl::StrJoin(names, ", ", [](std::string* out, std::string_view n) { out->append(n); }),
        ". Without the flag, the sizes of the source are taken: muster convert FROM TO"));
  }
  return absl::StrCat("--model-size ", name, ": base_num_decoder_layers=", size->layers,
                      " base_num_query_heads=", size->query_heads,
                      " base_num_kv_heads=", size->kv_heads, " head_dim=", size->head_dim,
                      " vocab_size=", size->vocab, " num_experts=", size->experts);
}

absl::StatusOr<std::string> expect_number(const SizeFlag& flag, const std::string& value) {
  int32_t number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", av(flag.flag), " is \"", value, "\"; it must be a number above 0"));
  }
  return absl::StrCat("--", av(flag.flag), " ", number, ": ", av(flag.key), "=", number);
}

// The flag names a folder of several adapters, and muster convert reads one.
absl::Status refuse_adapters(const std::string& from, const std::string& adapters) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--lora-input-adapters-path=", adapters,
      ": adapters are converted one at a time, and merged into their base:\n  muster convert ",
      shell_quoted(adapters + "/ADAPTER"), " MERGED --base ",
      shell_quoted(from.empty() ? "BASE" : from)));
}

absl::Status check_framework(const std::string& name) {
  if (name == "pax") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--fw is \"", name, "\"; ",
                   name == "t5x" ? "T5X's models have an encoder, and its checkpoints are not read"
                                 : "it may be pax",
                   ". muster convert takes the folders of runs, of Hugging Face and of Meta"));
}

std::string note_of_unused(const std::vector<std::string>& unused, bool has_optimizer) {
  if (unused.empty()) return "";
  return absl::StrCat("not used: ", absl::StrJoin(unused, ", "),
                      "; the format of the source is detected, and there is one layout with and "
                      "without Transformer Engine",
                      has_optimizer ? ". Without --weight-only the original also converts the "
                                      "optimizer's state; here it is left out"
                                    : "");
}

}  // namespace

bool is_converter_switch(std::string_view name) { return is_among(kSwitches, name); }

absl::StatusOr<ConverterMeaning> interpret_converter_flags(const std::string& from,
                                                           const ConverterFlags& flags) {
  ConverterMeaning meaning;
  std::vector<std::string> unused;
  const auto add = [&](absl::StatusOr<std::string> expected) {
    if (!expected.ok()) return expected.status();
    meaning.expected.push_back(*std::move(expected));
    return absl::OkStatus();
  };
  for (const auto& [name, value] : flags) {
    const auto* const size = std::ranges::find(kSizeFlags, std::string_view(name), &SizeFlag::flag);
    absl::Status status;
    if (name == "lora-input-adapters-path") {
      status = refuse_adapters(from, value);
    } else if (name == "model-size") {
      status = add(expect_model_size(value));
    } else if (name == "use-gated-activations") {
      status = add("--use-gated-activations: gated_mlp=true");
    } else if (size != std::end(kSizeFlags)) {
      status = add(expect_number(*size, value));
    } else if (is_among(kUnusedFlags, name)) {
      if (name == "fw") status = check_framework(value);
      unused.push_back(absl::StrCat("--", name, value.empty() ? "" : "=", value));
    } else {
      status = absl::InvalidArgumentError(absl::StrCat(
          "--", name,
          " has no counterpart; muster convert takes the model's folder and the one to "
          "make"));
    }
    if (!status.ok()) return status;
  }
  meaning.note = note_of_unused(unused, flags.contains("fw") && !flags.contains("weight-only"));
  return meaning;
}

}  // namespace muster::cli

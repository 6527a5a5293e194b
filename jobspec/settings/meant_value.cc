#include "jobspec/settings/meant_value.h"

#include <algorithm>
#include <cstddef>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"

namespace muster::jobspec {
namespace {

// Names in other programs, in lower case, and what they stand for. A key takes the first row whose
// value it has, so a name may have several rows.
struct ShortName {
  std::string_view name;
  std::string_view value;
};
constexpr ShortName kShortNames[] = {
    // types; a 16-bit type is bfloat16 here
    {"bf16", "bfloat16"},
    {"bf16", "default"},
    {"bfloat16", "default"},
    {"fp16", "bfloat16"},
    {"f16", "bfloat16"},
    {"float16", "bfloat16"},
    {"half", "bfloat16"},
    {"fp32", "float32"},
    {"f32", "float32"},
    {"float", "float32"},
    {"single", "float32"},
    {"full", "float32"},
    {"double", "float32"},
    {"fp64", "float32"},
    {"float64", "float32"},
    {"tf32", "tensorfloat32"},
    // quantization
    {"i8", "int8"},
    {"w8a8", "int8"},
    {"float8", "fp8"},
    {"f8", "fp8"},
    {"e4m3", "fp8"},
    // hardware
    {"cuda", "gpu"},
    {"nvidia", "gpu"},
    {"gpu_multihost", "gpu"},
    {"cpu_multiprocess", "cpu"},
    // attention
    {"te", "cudnn_flash_te"},
    {"transformer_engine", "cudnn_flash_te"},
    {"fa", "flash"},
    {"fa2", "flash"},
    {"sdpa", "dot_product"},
    {"xla", "dot_product"},
    // positions
    {"rotary", "rope"},
    {"absolute", "learned"},
    // remat
    {"all", "none"},
    {"save_everything", "none"},
    {"save_nothing", "full"},
    // data
    {"fake", "synthetic"},
    {"mock", "synthetic"},
    {"random", "synthetic"},
    {"dummy", "synthetic"},
    {"huggingface", "hf"},
    {"parquet", "hf"},
    {"jsonl", "hf"},
    {"json", "hf"},
    {"tfrecord", "tfds"},
    {"the_pile", "tfds"},
    {"pile", "tfds"},
    {"array_record", "grain"},
    {"arrayrecord", "grain"},
};

// Shorter words are part of too many names, and any two of them are near each other.
constexpr size_t kPartMin = 3;
constexpr size_t kMisspeltMin = 4;

}  // namespace

std::string_view meant_value(std::string_view word, std::span<const std::string_view> values) {
  std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(av(word)));
  lower.erase(0, lower.rfind('.') + 1);  // jnp.bfloat16, torch.float16; npos + 1 is 0
  if (lower.empty()) return {};
  const auto first = [&](const auto& matches) -> std::string_view {
    const auto found = std::ranges::find_if(values, matches);
    return found == values.end() ? std::string_view() : *found;
  };
  if (const auto same =
          first([&](std::string_view value) { return absl::EqualsIgnoreCase(av(value), lower); });
      !same.empty())
    return same;
  for (const ShortName& row : kShortNames) {
    if (row.name != lower) continue;
    const auto found = std::ranges::find(values, row.value);
    if (found != values.end()) return *found;
  }
  const auto begins = first([&](std::string_view value) { return value.starts_with(lower); });
  if (!begins.empty()) return begins;
  if (lower.size() >= kMisspeltMin) {
    const std::string_view nearest = nearest_name(lower, values);
    if (!nearest.empty()) return nearest;
  }
  if (lower.size() < kPartMin) return {};
  const auto part =
      first([&](std::string_view value) { return absl::StrContains(av(value), lower); });
  if (!part.empty()) return part;
  return first([&](std::string_view value) {
    return value.size() >= kPartMin && absl::StrContains(lower, av(value));
  });
}

std::string suggestion(std::string_view key, std::string_view word,
                       std::span<const std::string_view> values) {
  const std::string_view meant = meant_value(word, values);
  return meant.empty() ? "" : absl::StrCat("; did you mean ", av(key), "=", av(meant), "?");
}

}  // namespace muster::jobspec

#include "jobspec/keys/quantization_keys.h"

#include <array>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "jobspec/settings/meant_value.h"

namespace muster::jobspec {
namespace {

using trainer::QuantizationConfig;
using trainer::QuantizationType;

constexpr std::string_view kShards = "quantization_local_shard_count";
constexpr std::string_view kHistory = "fp8_amax_history_length";

// MaxText's values that are supported here.
struct Recipe {
  std::string_view name;
  QuantizationType type;
};
constexpr std::array<Recipe, 5> kRecipes = {{
    {"", QuantizationType::kNone},
    {"int8", QuantizationType::kInt8},
    {"fp8", QuantizationType::kFp8Delayed},
    {"te_fp8_delayedscaling", QuantizationType::kFp8Delayed},
    {"te_fp8_currentscaling", QuantizationType::kFp8Current},
}};

// MaxText's other values, each with its meaning and the nearest supported one.
struct Refused {
  std::string_view name;
  std::string_view what;
  std::string_view nearest;
};
constexpr std::string_view kQwix = "Qwix's recipes are not in this version";
constexpr std::string_view kAmd = "AMD's FNUZ formats are not in this version";
constexpr std::string_view kNoBlocks = "scales of blocks are not in this version";
constexpr std::string_view kAqtFp8 = "AQT has int8 alone in this version";
constexpr std::string_view kFourBits = "four-bit elements are not in this version";
constexpr std::array<Refused, 14> kRefused = {{
    {"fp8_full", kQwix, "te_fp8_currentscaling"},
    {"fp8_gpu", kQwix, "fp8"},
    {"fp8_e4m3", kQwix, "te_fp8_currentscaling"},
    {"fp8_e5m2", kQwix, "te_fp8_currentscaling"},
    {"nanoo_fp8", kAmd, "fp8"},
    {"fp8_nanoo", kAmd, "fp8"},
    {"aqt_fp8", kAqtFp8, "te_fp8_currentscaling"},
    {"aqt_fp8_full", kAqtFp8, "te_fp8_currentscaling"},
    {"te_mxfp8", kNoBlocks, "te_fp8_currentscaling"},
    {"te_nvfp4", kFourBits, "te_fp8_currentscaling"},
    {"te_nvfp4_no_rht", kFourBits, "te_fp8_currentscaling"},
    {"fp4", kFourBits, "fp8"},
    {"int4", kFourBits, "int8"},
    {"intmp", "mixed precisions by a file (quant_cfg_path) are not in this version", "int8"},
}};

absl::Status refuse(const std::string& name) {
  for (const Refused& row : kRefused) {
    if (name != row.name) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("quantization=", name, ": ", av(row.what),
                     "; the nearest is quantization=", av(row.nearest)));
  }
  std::vector<std::string_view> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  return absl::InvalidArgumentError(
      absl::StrCat("quantization=", show(name), ": must be \"\", int8, fp8, te_fp8_delayedscaling ",
                   "or te_fp8_currentscaling", suggestion("quantization", name, names)));
}

absl::Status read_type(SettingsReader& reader, QuantizationType& type) {
  std::string name;
  bool int8_training = false;  // MaxText's key before `quantization` existed
  reader.read("quantization", name);
  reader.read("int8_training", int8_training);
  if (int8_training) {
    reader.require(name.empty() || name == "int8", "int8_training",
                   "means quantization=int8, but quantization has another value");
    name = "int8";
  }
  for (const Recipe& recipe : kRecipes) {
    if (name != recipe.name) continue;
    type = recipe.type;
    return absl::OkStatus();
  }
  return refuse(name);
}

// Warns about a requested key that the quantization type does not read.
void warn_unread(const SettingsReader& reader, std::string_view key, std::string_view readers,
                 std::vector<std::string>& warnings) {
  if (reader.is_set_by_user(key))
    warnings.push_back(absl::StrCat(av(key), " has no effect: only ", av(readers), " reads it"));
}

}  // namespace

absl::Status read_quantization(SettingsReader& reader, QuantizationConfig& quantization,
                               std::vector<std::string>& warnings) {
  if (auto status = read_type(reader, quantization.type); !status.ok()) return status;
  if (quantization.type == QuantizationType::kFp8Delayed) {
    reader.read(kHistory, quantization.amax_history_length);
  } else {
    warn_unread(reader, kHistory, "quantization=fp8", warnings);
  }
  if (quantization.type != QuantizationType::kInt8) {
    warn_unread(reader, kShards, "quantization=int8", warnings);
    return reader.status();
  }
  int32_t shards = -1;
  reader.read(kShards, shards);
  reader.require(shards >= -1 && shards <= 1, kShards,
                 "must be -1 or 1 (a weight's gradient has one scale for the tokens that a rank "
                 "sees at a time), or 0 (it is not of integers)");
  quantization.int8_weight_gradients = shards != 0;
  return reader.status();
}

}  // namespace muster::jobspec

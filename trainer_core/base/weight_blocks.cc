#include "trainer_core/base/weight_blocks.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/model_config.h"

namespace muster::trainer {
namespace {

constexpr float kInt8Largest = 127;

// A value above bound i has a code above i.
constexpr auto kNf4Bounds = [] {
  std::array<float, kNf4Values.size() - 1> bounds{};
  for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = (kNf4Values[i] + kNf4Values[i + 1]) / 2;
  return bounds;
}();

float scale_of(std::span<const float> block) {
  float largest = 0;
  for (const float value : block) largest = std::max(largest, std::abs(value));
  return largest;
}

// Returns the code of NF4 whose value is nearest to x; of two, the smaller code.
uint8_t nf4_code(float x) {
  size_t code = 0;
  for (size_t step = kNf4Values.size() / 2; step > 0; step /= 2)
    if (x > kNf4Bounds[code + step - 1]) code += step;
  return static_cast<uint8_t>(code);
}

// bitsandbytes multiplies by the reciprocal, and replaces scales below this one by it.
constexpr float kSmallestScale = 1e-38F;

uint8_t code_of(WeightType type, float x, float scale) {
  const float bounded = std::max(scale, kSmallestScale);
  if (type == WeightType::kNf4) return nf4_code(x * (1 / bounded));
  const float code = std::nearbyint(x * (kInt8Largest / bounded));
  return static_cast<uint8_t>(static_cast<int8_t>(std::clamp(code, -kInt8Largest, kInt8Largest)));
}

// The value of a code, with the operations of the backends' dequantize_weights.
float value_of(WeightType type, uint8_t code, float scale) {
  if (type == WeightType::kNf4) return kNf4Values[code] * scale;
  return static_cast<float>(static_cast<int8_t>(code)) * scale * kInt8Step;
}

// A frozen matrix, and how ranks split it.
struct SplitMatrix {
  std::string name;
  ProjectionShape shape;
  int64_t units = 0;  // the parts that ranks may have alone: heads, or rows or columns of the MLP
  bool by_columns = false;
};

std::vector<SplitMatrix> matrices_of(const ModelConfig& model) {
  const auto matrix = [&](LoraTarget target, int64_t units, bool by_columns = false) {
    return SplitMatrix{std::string(name_of(kLoraTargetNames, target)),
                       projection_shape(model, target), units, by_columns};
  };
  std::vector<SplitMatrix> all = {matrix(LoraTarget::kQuery, model.num_query_heads),
                                  matrix(LoraTarget::kKey, model.num_kv_heads),
                                  matrix(LoraTarget::kOut, model.num_query_heads, true)};
  bool has_mlp = false;
  for (int32_t layer = 0; layer < model.num_layers; ++layer)
    has_mlp = has_mlp || !model.experts.in_layer(layer);
  if (has_mlp) {
    all.push_back(matrix(LoraTarget::kUp, model.mlp_dim));
    all.push_back(matrix(LoraTarget::kDown, model.mlp_dim, true));
  }
  if (model.experts.count > 1) {
    const int64_t d = model.emb_dim, m = model.experts.mlp_dim;
    all.push_back({"w1 of an expert", {m, d}, m, false});
    all.push_back({"w2 of an expert", {d, m}, m, true});
  }
  return all;
}

}  // namespace

void encode_blocks(WeightType type, std::span<const float> values, std::span<uint8_t> codes,
                   std::span<float> scales) {
  const auto count = static_cast<int64_t>(values.size());
  MUSTER_CHECK(type != WeightType::kPlain && count % kWeightBlock == 0 &&
               static_cast<int64_t>(codes.size()) == code_bytes(type, count) &&
               static_cast<int64_t>(scales.size()) == count / kWeightBlock)
      << count << " values in " << codes.size() << " bytes";
  for (int64_t block = 0; block < count / kWeightBlock; ++block) {
    const auto first = static_cast<size_t>(block * kWeightBlock);
    const auto of_block = values.subspan(first, kWeightBlock);
    const float scale = scales[static_cast<size_t>(block)] = scale_of(of_block);
    for (size_t i = 0; i < kWeightBlock; ++i) {
      const uint8_t code = code_of(type, of_block[i], scale);
      if (type == WeightType::kInt8) {
        codes[first + i] = code;
      } else if (i % 2 == 0) {
        codes[(first + i) / 2] = static_cast<uint8_t>(code << 4);
      } else {
        codes[(first + i) / 2] |= code;
      }
    }
  }
}

void encode_blocks_on(int32_t threads, WeightType type, std::span<const float> values,
                      std::span<uint8_t> codes, std::span<float> scales) {
  constexpr int64_t kBlocksPerPart = 4096;  // takes about a millisecond
  const auto blocks = static_cast<int64_t>(scales.size());
  const int64_t parts = (blocks + kBlocksPerPart - 1) / kBlocksPerPart;
  std::atomic<int64_t> next = 0;
  const auto encode = [&] {
    for (int64_t part = next++; part < parts; part = next++) {
      const auto first = static_cast<size_t>(part * kBlocksPerPart);
      const size_t count = std::min<size_t>(kBlocksPerPart, scales.size() - first);
      const auto bytes = static_cast<size_t>(code_bytes(type, kWeightBlock));
      encode_blocks(type, values.subspan(first * kWeightBlock, count * kWeightBlock),
                    codes.subspan(first * bytes, count * bytes), scales.subspan(first, count));
    }
  };
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < std::min<int64_t>(threads, parts); ++i) {
    try {
      others.emplace_back(encode);
    } catch (const std::system_error&) {
      break;  // no thread is left: the others do its part
    }
  }
  encode();
}

void round_to_blocks(WeightType type, std::span<float> values) {
  if (type == WeightType::kPlain) return;
  for (size_t first = 0; first < values.size(); first += kWeightBlock) {
    const auto block = values.subspan(first, std::min<size_t>(kWeightBlock, values.size() - first));
    const float scale = scale_of(block);
    for (float& value : block) value = value_of(type, code_of(type, value, scale), scale);
  }
}

absl::Status check_weight_blocks(const ModelConfig& model, int32_t tensor) {
  const WeightType type = model.lora.weight_type;
  if (type == WeightType::kPlain) return absl::OkStatus();
  for (const SplitMatrix& matrix : matrices_of(model)) {
    const auto [out, in] = matrix.shape;
    // Elements that a rank certainly has together: complete rows or, of columns, a part of a row.
    const bool is_even = matrix.units % tensor == 0;
    const int64_t units = is_even ? matrix.units / tensor : 1;
    const int64_t run = tensor == 1         ? out * in
                        : matrix.by_columns ? in / matrix.units * units
                                            : out / matrix.units * units * in;
    if (run % kWeightBlock == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "lora_weight_qtype is ", av(name_of(kWeightTypeNames, type)), ", but ", matrix.name, " (",
        out, " x ", in, ") on ", tensor, tensor == 1 ? " rank" : " tensor ranks", " has ", run,
        matrix.by_columns && tensor > 1 ? " elements of a row" : " consecutive elements",
        " per rank, which must be a multiple of ", kWeightBlock,
        " (the elements of a block); set another tensor degree, or lora_weight_qtype="));
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer

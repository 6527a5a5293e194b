// The storage of frozen weights in blocks with a scale each, as in QLoRA (Dettmers et al., "QLoRA:
// efficient finetuning of quantized LLMs", 2023, section 3) and bitsandbytes. A block has 64
// consecutive elements of a tensor in row-major order. Its scale is its largest magnitude (absmax),
// in fp32.
//
//   type   code of x                                  value             bytes per element
//   nf4    the nearest entry of a table of 16 values  scale table[code] 0.5 + 4 / 64
//   int8   x 127 / scale, rounded to nearest even     code scale / 127  1 + 4 / 64
//
// NF4's table (4-bit NormalFloat) has the quantiles of a normal distribution. A byte has two codes
// of NF4: that of the first element in its upper half. A block of zeros has the scale 0.
//
// Values are computed in fp32. They depend only on the elements of the block, so they are the same
// on every mesh if no block lies on two ranks (check_weight_blocks).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <absl/status/status.h>

#include "trainer_core/base/named_values.h"

namespace muster::trainer {

struct ModelConfig;

// The types in which frozen weights are stored, in the order of kWeightTypeNames, which are the
// values of MaxText's key lora_weight_qtype. kPlain: bf16 or fp32, as other parameters.
enum class WeightType : uint8_t { kPlain, kInt8, kNf4 };
constexpr ValueNames<3> kWeightTypeNames = {"", "int8", "nf4"};

// Elements of a block: bitsandbytes' default for weights.
constexpr int64_t kWeightBlock = 64;
// The factor of int8's values: 1 / 127, as bitsandbytes rounds it.
constexpr float kInt8Step = 7.874015718698502e-3F;

// The values of NF4's codes, as in bitsandbytes.
constexpr std::array<float, 16> kNf4Values = {-1.0F,
                                              -0.6961928009986877F,
                                              -0.5250730514526367F,
                                              -0.39491748809814453F,
                                              -0.28444138169288635F,
                                              -0.18477343022823334F,
                                              -0.09105003625154495F,
                                              0.0F,
                                              0.07958029955625534F,
                                              0.16093020141124725F,
                                              0.24611230194568634F,
                                              0.33791524171829224F,
                                              0.44070982933044434F,
                                              0.5626170039176941F,
                                              0.7229568362236023F,
                                              1.0F};

// Returns the elements with padding: a multiple of the block.
constexpr int64_t padded_to_blocks(int64_t elements) {
  return (elements + kWeightBlock - 1) / kWeightBlock * kWeightBlock;
}
// Returns the bytes of the codes of `elements` elements, a multiple of the block.
constexpr int64_t code_bytes(WeightType type, int64_t elements) {
  return type == WeightType::kNf4 ? elements / 2 : elements;
}

// Writes the codes and the scales of blocks of values. Requires a type with blocks, a multiple of
// the block, and finite values.
void encode_blocks(WeightType type, std::span<const float> values, std::span<uint8_t> codes,
                   std::span<float> scales);
// Does the same on at most `threads` threads, with the same results.
void encode_blocks_on(int32_t threads, WeightType type, std::span<const float> values,
                      std::span<uint8_t> codes, std::span<float> scales);
// Replaces values by those of their codes. The last block may be shorter.
void round_to_blocks(WeightType type, std::span<float> values);

// Checks that each rank of `tensor` ranks, which split matrices, has whole blocks of each frozen
// matrix. Returns InvalidArgument with the projection.
absl::Status check_weight_blocks(const ModelConfig& model, int32_t tensor);

}  // namespace muster::trainer

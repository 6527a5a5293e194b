// How the dense GEMMs of a layer (the query, key and value projections, attention's output
// projection, and those of the MLP) round their operands; selected by MaxText's key `quantization`.
// Embeddings, norms, attention scores, the head and the router are not quantized.
//
//   int8  AQT's int8 training (google/aqt, config_v3): integers in [-127, 127]. Each row or column
//         along the contracted dimension has its own scale, from its largest magnitude. The forward
//         GEMM and the GEMMs of the input gradient and the weight gradient are quantized. Gradients
//         round stochastically.
//   fp8   E4M3 forward and E5M2 for gradients (Micikevicius et al., "FP8 formats for deep
//         learning", 2022). Each tensor has one scale, from its largest magnitudes in earlier
//         steps: "delayed scaling", as in Flax's Fp8DotGeneral and Transformer Engine.
//         model/scaling_state.h describes the state.
//   te_fp8_currentscaling  The formats of fp8, with a scale from the tensor's current values.
#pragma once

#include <cstdint>

#include "trainer_core/base/named_values.h"

namespace muster::trainer {

// The types of quantization, in the order of kQuantizationNames.
enum class QuantizationType : uint8_t { kNone, kInt8, kFp8Delayed, kFp8Current };
constexpr ValueNames<4> kQuantizationNames = {"", "int8", "fp8", "te_fp8_currentscaling"};

// The maximum of amax_history_length. A longer history adds no useful information, and its state
// would outgrow the weights of small models.
constexpr int32_t kAmaxHistoryMax = 1 << 16;

// The quantization of a model and its options.
struct QuantizationConfig {
  QuantizationType type = QuantizationType::kNone;
  int32_t amax_history_length = 1024;  // kFp8Delayed only: steps
  // kInt8 only: quantizes the GEMMs of weight gradients, too. Corresponds to MaxText's
  // quantization_local_shard_count != 0.
  bool int8_weight_gradients = true;
  // kInt8 only: rounds gradients stochastically, as AQT does; if false, to nearest.
  bool stochastic_rounding = true;

  bool enabled() const { return type != QuantizationType::kNone; }
  friend bool operator==(const QuantizationConfig&, const QuantizationConfig&) = default;
};

}  // namespace muster::trainer

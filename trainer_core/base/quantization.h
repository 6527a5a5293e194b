// How the dense GEMMs of a layer (query-key-value, attention's output, the MLP's) round their
// operands: MaxText's `quantization`. Embeddings, norms, attention scores, the head and the router
// are not quantized.
//
//   int8  AQT's int8 training (google/aqt, config_v3): integers of [-127, 127], one scale per row
//         or column of the contracted dimension, from its largest magnitude; in the forward GEMM
//         and in those of the input's and the weight's gradient. Gradients round stochastically.
//   fp8   E4M3 forward and E5M2 for gradients (Micikevicius et al., "FP8 formats for deep
//         learning", 2022), one scale per tensor, from the largest magnitudes of earlier steps:
//         "delayed scaling", as in Flax's Fp8DotGeneral and Transformer Engine. The state is in
//         model/scaling_state.h.
//   te_fp8_currentscaling  The same formats with a scale from the tensor itself.
#pragma once

#include <cstdint>

#include "trainer_core/base/named_values.h"

namespace muster::trainer {

enum class QuantizationType : uint8_t { kNone, kInt8, kFp8Delayed, kFp8Current };
constexpr ValueNames<4> kQuantizationNames = {"", "int8", "fp8", "te_fp8_currentscaling"};

// A longer history adds no useful information, and its state would outgrow the weights of small
// models.
constexpr int32_t kAmaxHistoryMax = 1 << 16;

struct QuantizationConfig {
  QuantizationType type = QuantizationType::kNone;
  int32_t amax_history_length = 1024;  // kFp8Delayed only, in steps
  // kInt8 only: the GEMM of a weight's gradient is quantized, too. Corresponds to MaxText's
  // quantization_local_shard_count != 0.
  bool int8_weight_gradients = true;
  // kInt8's gradients round stochastically, as in AQT; otherwise to nearest.
  bool stochastic_rounding = true;

  bool enabled() const { return type != QuantizationType::kNone; }
  friend bool operator==(const QuantizationConfig&, const QuantizationConfig&) = default;
};

}  // namespace muster::trainer

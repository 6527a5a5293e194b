// The state of delayed scaling. For each quantized GEMM, and each of its input, its kernel (the
// weight) and its output's gradient: the scale that the next step rounds with, and the largest
// magnitudes (amaxes) of recent steps, from which it was computed. Names are Flax's
// (flax.linen.Fp8DotGeneralBase): "model.layers.0.self_attn.qkv_proj.input_amax_history". The state
// follows the parameters in their block, so that it is planned, saved, restored and sent to other
// ranks with them; it has no gradient and no optimizer state.
//
// Forward and backward passes only read scales, hence agree when a layer is recomputed, and record
// magnitudes separately (Transformer::amaxes). When the step is applied, the largest over
// micro-batches and ranks joins the history (Transformer::advance_scaling). A step that is skipped
// changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer_core/base/tensor_row.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/model/shard_layout.h"

namespace muster::trainer {

// A layer's quantized GEMMs: x wᵀ, with the rows of several kernels stacked if they have one input.
enum class DenseProduct : uint8_t { kQkv, kOut, kGateUp, kDown };
constexpr size_t kDenseProducts = 4;  // per layer
enum class DenseOperand : uint8_t { kInput, kKernel, kOutputGradient };
constexpr size_t kDenseOperands = 3;  // per GEMM

// Returns the number of scales, 0 without such a state: GEMMs times operands, in the order of
// layers. In the block all scales precede all histories.
int64_t scaling_scales(const ModelConfig& config);
// Returns the elements of the state: the scales, and a history for each.
int64_t scaling_elements(const ModelConfig& config);

// The model's rows in a checkpoint: the table's parameters as `stored`, then the scaling state.
std::vector<TensorRow> model_rows(const std::vector<ParamSpec>& table, const ModelConfig& config,
                                  DType stored = DType::kF32);
// The tensors of one rank: its shards, then the scaling state, which is whole on all ranks. The
// rank that stores the table's first element writes the scaling state.
ShardedTensors model_tensors(const ShardLayout& layout, const ModelConfig& config);

}  // namespace muster::trainer

// The state of delayed scaling: for each quantized product, of its input, its kernel (the weight) and its output's gradient, the
// scale that the next step rounds with, and the largest magnitudes of the latest steps, from which it was made. Names are Flax's
// (flax.linen.Fp8DotGeneralBase): "model.layers.0.self_attn.qkv_proj.input_amax_history". It lies behind the parameters in their
// block, so that it is planned, saved, restored and sent to other ranks with them; no gradient and no optimizer knows of it.
//
// Steps change it as follows. Forward and backward passes only read scales, hence agree when a layer is recomputed, and note
// magnitudes aside (Transformer::amaxes); the largest over micro-batches and ranks joins the history when the step is applied
// (Transformer::advance_scaling). A step that is passed over leaves everything as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer_core/base/tensor_row.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/model/shard_layout.h"

namespace muster::trainer {

// A layer's quantized products: x wᵀ with kernels of stacked rows where several have one input.
enum class DenseProduct : uint8_t { kQkv, kOut, kGateUp, kDown };
constexpr size_t kDenseProducts = 4;  // of a layer
enum class DenseOperand : uint8_t { kInput, kKernel, kOutputGradient };
constexpr size_t kDenseOperands = 3;  // of a product

// Scales of the model's state, 0 where it has none: products times operands, in the order of layers. In the block all scales lie
// before all histories.
int64_t scaling_scales(const ModelConfig& config);
// Numbers of the state: as many scales, and a history for each.
int64_t scaling_elements(const ModelConfig& config);

// What a checkpoint keeps of the model: the table's parameters, then the scaling state.
std::vector<TensorRow> model_rows(const std::vector<ParamSpec>& table, const ModelConfig& config);
// What one rank has of it, the scaling state, which is whole on all ranks, behind its shards. Who stores the table's first number
// writes it.
ShardedTensors model_tensors(const ShardLayout& layout, const ModelConfig& config);

}  // namespace muster::trainer

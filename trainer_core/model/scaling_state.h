// The state of delayed scaling (fp8). Each quantized GEMM has three operands: its input, its kernel
// (the weight) and the gradient of its output. The state of an operand is the scale with which the
// next step rounds it, and the largest magnitudes (amaxes) of recent steps, from which the scale is
// computed. Names are Flax's (flax.linen.Fp8DotGeneralBase):
// "model.layers.0.self_attn.qkv_proj.input_amax_history". The state follows the parameters in their
// flat block, so it is planned, saved, restored and sent to other ranks together with them. It has
// no gradient and no optimizer state.
//
// Passes read the scales and never change them, so a recomputed layer gives the same values. They
// record magnitudes in a separate buffer (Transformer::amaxes). When the step is applied, the
// maximum over all micro-batches and ranks is added to the history (Transformer::advance_scaling).
// A skipped step does not change the state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer_core/base/tensor_row.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/model/shard_layout.h"

namespace muster::trainer {

// The operands of a quantized GEMM.
enum class DenseOperand : uint8_t { kInput, kKernel, kOutputGradient };
constexpr size_t kDenseOperands = 3;  // per GEMM

// Returns the number of scales: layers times GEMMs times operands, in this order; 0 if the model
// does not use delayed scaling. In the flat block, all scales precede all histories.
int64_t scaling_scales(const ModelConfig& config);
// Returns the number of elements of the state: the scales, and a history for each scale.
int64_t scaling_elements(const ModelConfig& config);

// Returns the tensors of the model in a checkpoint: the parameters of `table` as `stored`, then the
// scaling state.
std::vector<TensorRow> model_rows(const std::vector<ParamSpec>& table, const ModelConfig& config,
                                  DType stored = DType::kF32);
// Returns the tensors of one rank: its shards of the parameters, then the scaling state, which
// every rank stores completely. The rank that stores the first element of the table writes the
// scaling state to checkpoints.
ShardedTensors model_tensors(const ShardLayout& layout, const ModelConfig& config);

}  // namespace muster::trainer

// Builds the plan of one rank's step. Pure arithmetic: nothing is allocated.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Lays out the buffers of a step. Allocates nothing. `threads` is the CPU backend's. `keeps` and
// `optimizer_state` (fp32 elements) apply to training: without a backward pass nothing is kept.
// `dtype` is the activations'. `packed`: batches have starts. `sharding` is for the same model and
// dtype; nullopt: the rank stores everything.
TransformerPlan plan_transformer(const ModelConfig& model, int32_t batch, int32_t seq_len,
                                 DType dtype, const LayerPlacements& placements, bool training,
                                 int32_t threads, int64_t optimizer_state = 0, bool packed = false,
                                 const std::optional<Sharding>& sharding = std::nullopt);

// The same for decoding, with a cache of `capacity` positions, to which a call adds at most
// `chunk`. With bf16, matrices and the cache are bf16. All other buffers overlap with memory that
// loading needs beside the rounded block, so parameters must be loaded before the Transformer is
// constructed: into loading_params(), then settle_params().
TransformerPlan plan_decoder(const ModelConfig& model, int32_t batch, int32_t chunk,
                             int32_t capacity, int32_t threads, DType dtype = DType::kF32);

}  // namespace muster::trainer

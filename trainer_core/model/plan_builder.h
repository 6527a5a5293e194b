// Builds the plans of a rank. Pure arithmetic: no memory is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Returns the plan of a training step or, without `training`, of a forward pass, for micro-batches
// of `batch` sequences of `seq_len` tokens. `dtype` is the type of activations. `placements` and
// `optimizer_state` (fp32 elements) are used for training only. `threads` is the number of threads
// of the CPU backend. `packed` states that batches have starts (SequenceSpans). `sharding` must be
// for the same model and dtype; nullopt: the rank stores all parameters.
TransformerPlan build_transformer_plan(const ModelConfig& model, int32_t batch, int32_t seq_len,
                                       DType dtype, const LayerPlacements& placements,
                                       bool training, int32_t threads, int64_t optimizer_state = 0,
                                       bool packed = false,
                                       const std::optional<Sharding>& sharding = std::nullopt);

// Returns the plan of decoding; each call of Transformer::decode() has at most `rows` rows. With
// `dtype` bf16, matrices and the cache are bf16. The parameters must be written to stored_boxes()
// before the Transformer is constructed. `adapters` can be used beside the model
// (served_adapter.h). `tensor`: the rank, if several ranks divide the heads, MLP columns and
// vocabulary ids; each stores its part of the parameters and of the cache, and all rows.
TransformerPlan plan_decoder(const ModelConfig& model, int32_t rows, const CacheSize& cache,
                             int32_t threads, DType dtype = DType::kF32,
                             std::span<const LoraConfig> adapters = {}, AxisCoordinate tensor = {});

}  // namespace muster::trainer

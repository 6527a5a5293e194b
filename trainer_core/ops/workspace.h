// How much scratch each operation of the CPU backend needs, in fp32 elements: what the memory plan
// reserves before a backend exists. One workspace of the largest size serves all calls.
#pragma once

#include <cstdint>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Sums over rows (gradients of gains and biases) are made in this many blocks of rows whatever the number of threads, so
// that the order of additions does not depend on it. Enough to keep 16 threads evenly busy.
constexpr int64_t kRowSumBlocks = 64;

int64_t cpu_norm_backward_elements(int64_t width);
int64_t cpu_bias_backward_elements(int64_t width);
// Of the keys of these positions, or of the shape's own.
int64_t cpu_attention_elements(const AttentionShape& shape, const Positions& keys, int threads);
int64_t cpu_attention_elements(const AttentionShape& shape, int threads);
int64_t cpu_attention_cached_elements(const AttentionShape& shape, int64_t capacity, int threads);
int64_t cpu_attention_backward_elements(const AttentionShape& shape, const Positions& keys,
                                        int threads);
int64_t cpu_attention_backward_elements(const AttentionShape& shape, int threads);

}  // namespace muster::trainer

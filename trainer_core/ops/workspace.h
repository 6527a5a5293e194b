// How much scratch each operation of the backends needs, in fp32 elements: what the memory plan reserves before a backend exists. One
// workspace of the largest size serves all calls. What has no function of the CUDA backend's own needs what the CPU's does
// (gradients of norms and biases), or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

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

// A number for each head's row, and each tile of queries' part of the biases' gradient: tiles of so many rows, by what four of them in shared
// memory leave room for, or of more.
constexpr int64_t cuda_attention_tile_rows(int64_t head_dim) { return head_dim <= 128 ? 16 : 8; }
int64_t cuda_attention_backward_elements(const AttentionShape& shape);

// Bytes of workspace that cuDNN's deterministic backward pass takes at most. It keeps the gradients of all scores in bf16, quadratic in the
// length (cudnn-frontend 1.18, CompositeSDPABackwardNode::expand_node: "dP workspace"; 9.25 sums dq of long sequences in fp32 and in a fixed
// order instead), sums of rows in fp32, and where query heads share keys the gradients of keys and values of each.
size_t cudnn_attention_backward_bytes(const AttentionShape& shape);
// The least that attention is computed of by itself: the queries of one key head in one sequence.
AttentionShape smallest_attention_part(const AttentionShape& shape);
// What attention is computed of at a time where there is no room for all of it: equal runs of its sequences, or of one sequence's key heads.
struct AttentionPart {
  int64_t sequences, key_heads;
};
// The largest part of `whole` that is smaller than `part`; none behind a single key head.
std::optional<AttentionPart> smaller_part(const AttentionPart& whole, const AttentionPart& part);

}  // namespace muster::trainer

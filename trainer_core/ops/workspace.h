// The scratch that each operation of the backends needs, in fp32 elements, which the memory plan
// reserves before a backend exists. One workspace of the largest size serves all calls. Operations
// without a CUDA-specific function need the CPU's size (gradients of norms and biases), or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Number of row blocks of sums over rows (gradients of gains and biases), independent of the number
// of threads, so that the order of additions does not depend on it. Enough to balance 16 threads.
constexpr int64_t kRowSumBlocks = 64;

int64_t cpu_norm_backward_elements(int64_t width);
int64_t cpu_bias_backward_elements(int64_t width);
// Keys of 8 bytes for the rows of a table's gradient, sorted in parts and as a whole.
constexpr int64_t row_sort_elements(int64_t rows) { return 4 * rows; }
// Computed for the keys of these positions, or for the shape's own.
int64_t cpu_attention_elements(const AttentionShape& shape, const Positions& keys, int threads);
int64_t cpu_attention_elements(const AttentionShape& shape, int threads);
int64_t cpu_attention_cached_elements(const AttentionShape& shape, int64_t capacity, int threads);
int64_t cpu_attention_backward_elements(const AttentionShape& shape, const Positions& keys,
                                        int threads);
int64_t cpu_attention_backward_elements(const AttentionShape& shape, int threads);

// An element per row of each head, and the partial bias gradient of each tile of queries: tiles
// have so many rows, as far as four tiles fit in shared memory, or more.
constexpr int64_t cuda_attention_tile_rows(int64_t head_dim) { return head_dim <= 128 ? 16 : 8; }
int64_t cuda_attention_backward_elements(const AttentionShape& shape);

// Returns the maximum of workspace bytes of cuDNN's deterministic backward pass. It stores the
// gradients of all scores in bf16, quadratic in the length (cudnn-frontend 1.18,
// CompositeSDPABackwardNode::expand_node: "dP workspace"; 9.25 instead sums dq of long sequences in
// fp32 in a fixed order), sums of rows in fp32, and per-query-head gradients of keys and values if
// query heads share keys.
size_t cudnn_attention_backward_bytes(const AttentionShape& shape);
// Returns the smallest unit of attention: the queries of one key head in one sequence.
AttentionShape smallest_attention_part(const AttentionShape& shape);
// A part of attention that is computed at a time if not all of it fits: equal runs of its
// sequences, or of one sequence's key heads.
struct AttentionPart {
  int64_t sequences, key_heads;
};
// Returns the largest part of `whole` that is smaller than `part`; none after a single key head.
std::optional<AttentionPart> smaller_part(const AttentionPart& whole, const AttentionPart& part);

}  // namespace muster::trainer

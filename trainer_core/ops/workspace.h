// The sizes of the workspaces that operations need, in fp32 elements. The memory plan reserves the
// largest size before a backend exists; one workspace serves all calls. On the CUDA backend, the
// gradients of norms and biases need the CPU's sizes; other operations without a CUDA function here
// need no workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Number of blocks into which sums over rows (gradients of gains and biases) are divided, enough to
// balance 16 threads. It is a constant, so that the order of additions does not depend on the
// number of threads.
constexpr int64_t kRowSumBlocks = 64;

int64_t cpu_norm_backward_elements(int64_t width);
int64_t cpu_bias_backward_elements(int64_t width);
// Room for two arrays of 8-byte keys, one key per row: see embedding.cu.
constexpr int64_t row_sort_elements(int64_t rows) { return 4 * rows; }
// The attention functions return the size for keys at `keys`, or else at the shape's own positions.
int64_t cpu_attention_elements(const AttentionShape& shape, const Positions& keys, int threads);
int64_t cpu_attention_elements(const AttentionShape& shape, int threads);
// `capacity`: the maximum positions of a sequence.
int64_t cpu_attention_paged_elements(const AttentionShape& shape, int64_t capacity, int threads);
int64_t cpu_attention_backward_elements(const AttentionShape& shape, const Positions& keys,
                                        int threads);
int64_t cpu_attention_backward_elements(const AttentionShape& shape, int threads);

// Returns the rows of a tile of fp32 queries. It depends on the head's width, because four tiles
// must fit in shared memory.
constexpr int64_t cuda_attention_tile_rows(int64_t head_dim) { return head_dim <= 128 ? 16 : 8; }
// Returns the size for an element per row of each head, and for the part of the bias gradient from
// each tile of queries.
int64_t cuda_attention_backward_elements(const AttentionShape& shape);

// Returns the maximum workspace, in bytes, of cuDNN's deterministic backward pass. It has the
// gradients of all scores in bf16, whose size is quadratic in the sequence length (cudnn-frontend
// 1.18, CompositeSDPABackwardNode::expand_node: "dP workspace"; cuDNN 9.25 instead sums dq of long
// sequences in fp32 in a fixed order); sums of rows in fp32; and the gradients of keys and values
// of each query head if query heads share keys.
size_t cudnn_attention_backward_bytes(const AttentionShape& shape);
// Returns the shape of the smallest part of attention: one sequence, with one key head and the
// query heads that use it.
AttentionShape smallest_attention_part(const AttentionShape& shape);
// The size of the parts in which attention is computed if the workspace is too small for all of it:
// some sequences, or some key heads of one sequence.
struct AttentionPart {
  int64_t sequences, key_heads;
};
// Returns the largest part of `whole` that is smaller than `part`; nullopt if `part` is a single
// key head.
std::optional<AttentionPart> smaller_part(const AttentionPart& whole, const AttentionPart& part);

}  // namespace muster::trainer

#include "trainer_core/ops/workspace.h"

#include <algorithm>

#include "trainer_core/ops/cpu/attention_layout.h"

namespace muster::trainer {

int64_t cpu_norm_backward_elements(int64_t width) { return 2 * kRowSumBlocks * width; }
int64_t cpu_bias_backward_elements(int64_t width) { return kRowSumBlocks * width; }

// A thread works on one head at a time: forward a query's, backward a key's with all its queries'.
// Backward each sequence has its own gradient of the relative biases besides, so that their sum
// does not depend on threads.
int64_t cpu_attention_elements(const AttentionShape& shape, const Positions& keys, int threads) {
  const int64_t busy = std::min<int64_t>(threads, shape.batch * shape.heads);
  return busy * cpu::AttentionLayout(shape, keys).forward_elements();
}
int64_t cpu_attention_elements(const AttentionShape& shape, int threads) {
  return cpu_attention_elements(shape, shape.row_positions(), threads);
}

int64_t cpu_attention_paged_elements(const AttentionShape& shape, int64_t capacity, int threads) {
  return threads *
         (capacity + (shape.buckets.exist() ? cpu::bias_row_elements(capacity) : int64_t{0}));
}

int64_t cpu_attention_backward_elements(const AttentionShape& shape, const Positions& keys,
                                        int threads) {
  const int64_t busy = std::min<int64_t>(threads, shape.batch * shape.kv_heads);
  return busy * cpu::AttentionLayout(shape, keys).backward_elements() +
         shape.batch * shape.bias_elements();
}
int64_t cpu_attention_backward_elements(const AttentionShape& shape, int threads) {
  return cpu_attention_backward_elements(shape, shape.row_positions(), threads);
}

int64_t cuda_attention_backward_elements(const AttentionShape& shape) {
  const int64_t rows = cuda_attention_tile_rows(shape.head_dim);
  return shape.rows() * shape.heads +
         shape.batch * ((shape.seq_len + rows - 1) / rows) * shape.bias_elements();
}

size_t cudnn_attention_backward_bytes(const AttentionShape& shape) {
  constexpr int64_t kTile = 128;  // rows are filled up to a kernel's tiles
  constexpr int64_t kBf16Bytes = 2, kF32Bytes = 4;
  constexpr int64_t kRest = int64_t{1} << 20;  // lengths of sequences, alignment
  const int64_t rows = (shape.seq_len + kTile - 1) / kTile * kTile;
  const int64_t heads = shape.batch * shape.heads, elements = heads * rows * shape.head_dim;
  const int64_t scores = std::max(heads * rows * rows * kBf16Bytes, elements * kF32Bytes);
  const int64_t of_shared = shape.heads == shape.kv_heads ? 0 : 2 * elements * kF32Bytes;
  return static_cast<size_t>(scores + heads * rows * kF32Bytes + of_shared + kRest);
}

namespace {

// The largest divisor of n below `part`.
int64_t next_divisor(int64_t n, int64_t part) {
  do --part;
  while (n % part != 0);
  return part;
}

}  // namespace

std::optional<AttentionPart> smaller_part(const AttentionPart& whole, const AttentionPart& part) {
  if (part.sequences > 1)
    return AttentionPart{next_divisor(whole.sequences, part.sequences), whole.key_heads};
  if (part.key_heads > 1) return AttentionPart{1, next_divisor(whole.key_heads, part.key_heads)};
  return std::nullopt;
}

AttentionShape smallest_attention_part(const AttentionShape& shape) {
  AttentionShape part = shape;
  part.batch = 1;
  part.heads = shape.heads / shape.kv_heads;
  part.kv_heads = 1;
  return part;
}

}  // namespace muster::trainer

// The shape and the options of a layer's attention, for rope, attention and their backward
// operations. The letters are those of ops.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer_core/base/relative_buckets.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// A row of qkv is [H * h queries | K * h keys | K * h values]; query head q uses key/value head q /
// (H / K).
struct AttentionShape {
  int64_t batch = 0;     // B
  int64_t seq_len = 0;   // S: number of positions of a sequence that this rank computes
  int64_t heads = 0;     // H
  int64_t kv_heads = 0;  // K, divides H
  int64_t head_dim = 0;  // h; must be even with rope
  double scale = 0;      // multiplies the scores; 0: 1 / sqrt(h)
  double soft_cap = 0;   // scores become cap tanh(score / cap); 0: none
  // Number of latest positions to which a position attends, including itself; 0: all positions up
  // to itself.
  int64_t window = 0;
  bool extra_zero = false;  // the softmax has one more score, 0, whose value is 0
  // buckets of the bias that is added to the scaled scores; none: no bias
  RelativeBuckets buckets{};
  // (B, S) int32, for sequences of several documents: for each position, the position at which its
  // document begins; nondecreasing in a sequence. A position attends to no key before the
  // document's begin, and its index in rope's tables counts from that begin. No tensor: all
  // documents begin at 0.
  Tensor starts{};
  // The sequence positions of the S rows; empty: 0 … S - 1.
  Positions positions{};

  // Returns whether libraries such as cuDNN support the attention: causal attention over complete
  // sequences, with or without a window.
  bool is_plain() const {
    return soft_cap == 0 && !extra_zero && !buckets.exist() && starts.data == nullptr &&
           has_first_positions();
  }
  // Returns whether the rank has the first S positions of each sequence.
  bool has_first_positions() const {
    return positions.runs() == 0 || (positions.runs() == 1 && positions.run(0).position == 0);
  }
  Positions row_positions() const {
    return positions.runs() == 0 ? Positions::first(seq_len) : positions;
  }
  TokenRows token_rows() const { return {row_positions()}; }
  int64_t rows() const { return batch * seq_len; }
  int64_t bias_elements() const { return heads * buckets.count; }
  int64_t kv_width() const { return 2 * kv_heads * head_dim; }
  int64_t qkv_width() const { return out_width() + kv_width(); }
  int64_t out_width() const { return heads * head_dim; }
  double score_scale() const {
    return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(head_dim));
  }
};

// The keys and the values of one layer's earlier positions, for decoding: two tensors (blocks, K,
// P, h). A block has P consecutive positions of one sequence. The elements have the activations'
// type, or they are int8: then an element is its int8 times the scale of its head and position.
struct KvCache {
  Tensor keys;
  Tensor values;
  Tensor key_scales{};  // (blocks, K, P) fp32; no tensors unless the cache is int8
  Tensor value_scales{};

  bool is_int8() const { return keys.dtype == DType::kI8; }
  int64_t blocks() const { return keys.dim(0); }
  int64_t block_positions() const { return keys.dim(2); }
};

// The rows of a decoding call and their places in the cache. N sequences have up to M blocks each.
struct PagedRows {
  Tensor sequences;  // (R) int32: the row's sequence, in [0, N)
  Tensor positions;  // (R) int32: the row's position in its sequence, below M P
  // (N, M) int32: the blocks of each sequence, in the order of positions. Entries after the block
  // of the sequence's last row are not read.
  Tensor blocks;

  int64_t blocks_per_sequence() const { return blocks.dim(1); }
};

}  // namespace muster::trainer

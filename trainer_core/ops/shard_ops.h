// The operations of ranks that have only some positions of a sequence, some heads of a layer or
// some ids of the vocabulary. The rules of ops.h for every operation apply. trainer_core/parallel
// combines them into complete layers.
//
// Letters: as in ops.h; S' positions of every sequence, usually another rank's, V' of V ids.
#pragma once

#include <cstdint>

#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/attention_shape.h"
#include "trainer_core/ops/op_arguments.h"

namespace muster::trainer {

// Rows (B S', 2 K h): the keys and values of qkv at these positions. fp32 or bf16.
struct KeyValueBlock {
  Tensor rows;
  Positions positions;
};

// Attention over the keys so far. Always fp32, because each block of keys adds to it.
struct AttentionSums {
  Tensor out;  // (T, H h)
  Tensor lse;  // (B, H, S); -1e30 of a row that has seen no key
};

// The gradients that a block of keys contributes, fp32.
struct AttentionBlockGradients {
  Tensor dq;     // (T, H h)
  Tensor dkv;    // (B S', 2 K h)
  Tensor dbias;  // (H, buckets), no tensor without buckets
};

// Statistics of a row's V' logits: the largest, the sum of exp(logit - largest), and the target's
// logit, or 0 if another slice has the target.
constexpr int64_t kLogitSums = 3;

class ShardOps {
 public:
  virtual ~ShardOps() = default;

  // to (R, n)[:, to_column …] = from (R, m)[:, from_column …], so many columns. Each is fp32 or
  // bf16; the types may differ.
  virtual void copy_columns(const Tensor& from, int64_t from_column, const Tensor& to,
                            int64_t to_column, int64_t columns) = 0;

  // Attention of the shape's queries over some of the keys (Liu et al., "Ring attention", 2023;
  // sums as in Dao, "FlashAttention-2", 2023): written, or merged with the result for other keys in
  // `sums`. With lse' of the block's scores, lse'' = log(exp(lse) + exp(lse')) and out'' = out
  // exp(lse - lse'') + out' exp(lse' - lse''). The queries are those of qkv; visibility follows
  // positions, as in attention(). The call that writes counts an extra zero. Keys that no query
  // sees cost nothing, nor do pairs of tiles that do not see each other. Runs of queries and keys
  // must be equal or disjoint.
  virtual void attention_block(const AttentionShape& shape, const Tensor& qkv,
                               const KeyValueBlock& keys, const Tensor& bias,
                               const AttentionSums& sums, Accumulate accumulate,
                               Workspace workspace) = 0;
  // The block's part of attention_backward, given out and lse over all keys: adds to gradients.
  virtual void attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                                        const KeyValueBlock& keys, const Tensor& bias,
                                        const Tensor& out, const Tensor& lse, const Tensor& dout,
                                        const AttentionBlockGradients& gradients,
                                        Workspace workspace) = 0;

  // Vocabulary-parallel cross-entropy (Shoeybi et al., "Megatron-LM", 2019, section 3): sums (R, 3)
  // of logits (R, V'), soft-capped first if the shape has a cap. Leaves logits unchanged, or
  // capped.
  virtual void logit_sums(const LossShape& shape, const VocabularySlice& slice,
                          const Tensor& logits, const Tensor& targets, const Tensor& sums) = 0;
  // Computes losses (R) as in cross_entropy(), from the sums (slices, R, 3) of all slices.
  virtual void sliced_cross_entropy(const LossShape& shape, const Tensor& sums,
                                    const Tensor& weights, const Tensor& losses) = 0;
  // The same, and replaces this slice's logits from logit_sums by cross_entropy_backward's
  // gradient.
  virtual void sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& slice,
                                             const Tensor& logits, const Tensor& targets,
                                             const Tensor& sums, const Tensor& weights,
                                             const Tensor& losses) = 0;
};

}  // namespace muster::trainer

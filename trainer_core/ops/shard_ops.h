// The part of the op table for ranks that have some positions of a sequence, some heads of a layer or some ids of the vocabulary.
// What ops.h says of every op holds for these. trainer_core/parallel makes them into whole layers.
//
// Letters: as in ops.h; S' positions of every sequence, mostly another rank's, V' of V ids.
#pragma once

#include <cstdint>

#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/attention_shape.h"
#include "trainer_core/ops/op_arguments.h"

namespace muster::trainer {

// Rows (B S', 2 K h): the part of qkv behind the queries, of these positions. fp32 or bf16.
struct KeyValueBlock {
  Tensor rows;
  Positions positions;
};

// Attention over the keys so far. fp32 whatever the activations are, because it is added to with each block of keys.
struct AttentionSums {
  Tensor out;  // (T, H h)
  Tensor lse;  // (B, H, S); -1e30 of a row that has seen no key
};

// What a block of keys adds to gradients, fp32.
struct AttentionBlockGradients {
  Tensor dq;     // (T, H h)
  Tensor dkv;    // (B S', 2 K h)
  Tensor dbias;  // (H, buckets), no tensor without buckets
};

// What V' ids say about rows' logits: the largest, the sum of exp(logit - largest), and the target's logit or 0 where another
// slice has the target.
constexpr int64_t kLogitSums = 3;

class ShardOps {
 public:
  virtual ~ShardOps() = default;

  // to (R, n)[:, to_column …] = from (R, m)[:, from_column …], so many columns. Both fp32 or bf16, not necessarily alike.
  virtual void copy_columns(const Tensor& from, int64_t from_column, const Tensor& to,
                            int64_t to_column, int64_t columns) = 0;

  // Attention of the shape's queries over some of the keys (Liu et al., "Ring attention", 2023; sums as in Dao,
  // "FlashAttention-2", 2023): written, or merged with what `sums` holds of other keys. With lse' of the block's scores, lse'' =
  // log(exp(lse) + exp(lse')) and out'' = out exp(lse - lse'') + out' exp(lse' - lse''). The queries are those of qkv; keys see as
  // in attention(), by position. An extra zero is counted by the call that writes. Keys that no query sees cost
  // nothing, pairs of tiles that do not see each other neither. Runs of queries and keys are the same or do not meet.
  virtual void attention_block(const AttentionShape& shape, const Tensor& qkv,
                               const KeyValueBlock& keys, const Tensor& bias,
                               const AttentionSums& sums, Accumulate accumulate,
                               Workspace workspace) = 0;
  // Its part of attention_backward, given out and lse over all keys: adds to gradients.
  virtual void attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                                        const KeyValueBlock& keys, const Tensor& bias,
                                        const Tensor& out, const Tensor& lse, const Tensor& dout,
                                        const AttentionBlockGradients& gradients,
                                        Workspace workspace) = 0;

  // Vocabulary-parallel cross-entropy (Shoeybi et al., "Megatron-LM", 2019, section 3): sums (R, 3) of logits (R, V'), soft-capped
  // first where the shape says so. Leaves logits as they are, or capped.
  virtual void logit_sums(const LossShape& shape, const VocabularySlice& slice,
                          const Tensor& logits, const Tensor& targets, const Tensor& sums) = 0;
  // losses (R) as cross_entropy() has them, from the sums (slices, R, 3) of all slices.
  virtual void sliced_cross_entropy(const LossShape& shape, const Tensor& sums,
                                    const Tensor& weights, const Tensor& losses) = 0;
  // And replaces what logit_sums has left of this slice by cross_entropy_backward's gradient.
  virtual void sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& slice,
                                             const Tensor& logits, const Tensor& targets,
                                             const Tensor& sums, const Tensor& weights,
                                             const Tensor& losses) = 0;
};

}  // namespace muster::trainer

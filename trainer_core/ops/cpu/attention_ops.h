// The CPU backend's rope and attention: checks shapes and splits heads among threads.
#pragma once

#include "trainer_core/ops/cpu/expert_ops.h"
#include "trainer_core/ops/cpu/kernels.h"

namespace muster::trainer::cpu {

class CpuAttentionOps : public CpuExpertOps {
 public:
  void rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin, RopePairs pairs,
            RopeDirection direction, const Tensor& qkv) override;
  void attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                 const Tensor& out, const Tensor& lse, Workspace workspace) override;
  void attention_cached(const AttentionShape& shape, int64_t position, const Tensor& qkv,
                        const Tensor& bias, const KvCache& cache, const Tensor& out,
                        Workspace workspace) override;
  void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                          const Tensor& out, const Tensor& lse, const Tensor& dout,
                          const Tensor& dqkv, const Tensor& dbias, Accumulate accumulate,
                          Workspace workspace) override;
  void attention_block(const AttentionShape& shape, const Tensor& qkv, const KeyValueBlock& keys,
                       const Tensor& bias, const AttentionSums& sums, Accumulate accumulate,
                       Workspace workspace) override;
  void attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                                const KeyValueBlock& keys, const Tensor& bias, const Tensor& out,
                                const Tensor& lse, const Tensor& dout,
                                const AttentionBlockGradients& gradients,
                                Workspace workspace) override;

 protected:
  using CpuExpertOps::CpuExpertOps;

 private:
  void forward(const AttentionForward& args, Workspace workspace);
  // Writes or adds to dbias the sum over sequences.
  void backward(AttentionBackward args, const Tensor& dbias, Accumulate accumulate,
                Workspace workspace);
};

}  // namespace muster::trainer::cpu

// The CPU backend's losses: checks shapes and splits rows among threads.
#pragma once

#include "trainer_core/ops/cpu/attention_ops.h"

namespace muster::trainer::cpu {

class CpuLossOps : public CpuAttentionOps {
 public:
  void soft_cap(double cap, const Tensor& x) override;
  void cross_entropy(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                     const Tensor& weights, const Tensor& losses) override;
  void cross_entropy_backward(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                              const Tensor& weights, const Tensor& losses) override;
  void logit_sums(const LossShape& shape, const VocabularySlice& slice, const Tensor& logits,
                  const Tensor& targets, const Tensor& sums) override;
  void sliced_cross_entropy(const LossShape& shape, const Tensor& sums, const Tensor& weights,
                            const Tensor& losses) override;
  void sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& slice,
                                     const Tensor& logits, const Tensor& targets,
                                     const Tensor& sums, const Tensor& weights,
                                     const Tensor& losses) override;

 protected:
  using CpuAttentionOps::CpuAttentionOps;

 private:
  void loss(const LossShape& shape, const Tensor& logits, const Tensor& targets,
            const Tensor& weights, const Tensor& losses, bool gradient);
};

}  // namespace muster::trainer::cpu

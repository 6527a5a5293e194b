// The optimizers' part of the CPU backend: checks shapes and splits kernels' ranges among threads.
#pragma once

#include "trainer_core/ops/ops.h"

namespace muster::trainer::cpu {

// The rest of the table is in CpuQuantizeOps (quantize_ops.h), CpuExpertOps (expert_ops.h),
// CpuAttentionOps (attention_ops.h), CpuLossOps (loss_ops.h) and CpuOps (cpu_ops.cc).
class OptimizerOps : public Ops {
 public:
  void adam(const AdamStep& step, const Tensor& grads, const Tensor& params, const Tensor& m,
            const Tensor& v) override;
  void adam_direction(const AdamStep& step, const Tensor& grads, const Tensor& m,
                      const Tensor& v) override;
  void adafactor_direction(const AdafactorStep& step, const Tensor& grads,
                           const Tensor& v) override;
  void add_squares(const Tensor& x, std::span<double> rows, std::span<double> columns) override;
  void adafactor_factors(const AdafactorStep& step, std::span<const double> row_sums,
                         std::span<const double> column_sums, const Tensor& rows,
                         const Tensor& columns) override;
  void adafactor_factored_direction(const AdafactorStep& step, const Tensor& grads,
                                    const Tensor& rows, int64_t first_row, const Tensor& columns,
                                    int64_t first_column) override;
  void apply_update(double rate, double kept, const Tensor& direction,
                    const Tensor& params) override;

 protected:
  explicit OptimizerOps(int threads) : threads_(threads) {}

  int threads_;
};

}  // namespace muster::trainer::cpu

// The optimizers' part of the CPU backend: checks shapes and splits kernels' ranges among threads. Semantics are those of
// ops.h.
#pragma once

#include "trainer_core/ops/ops.h"

namespace muster::trainer::cpu {

void adam(int threads, const AdamStep& step, const Tensor& grads, const Tensor& params,
          const Tensor& m, const Tensor& v);
void adam_direction(int threads, const AdamStep& step, const Tensor& grads, const Tensor& m,
                    const Tensor& v);
void adafactor_direction(int threads, const AdafactorStep& step, const Tensor& grads,
                         const Tensor& v);
void adafactor_factored_direction(int threads, const AdafactorStep& step, const Tensor& grads,
                                  const Tensor& rows, const Tensor& columns);
void apply_update(int threads, double rate, double kept, const Tensor& direction,
                  const Tensor& params);

}  // namespace muster::trainer::cpu

// The operations that Ops::fused_matmul applies to a GEMM's result before it stores the result.
#pragma once

#include <cstdint>

#include "trainer_core/base/model_config.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/op_arguments.h"

namespace muster::trainer {

// The steps from a GEMM's result p (M, N) to the output c (M, N), in the order of the fields. `pre`
// is (M, N) of c's type.
struct Epilogue {
  enum class Activate : uint8_t {
    kNo,        // c = p + bias
    kForward,   // pre = p + bias, written; c = f(pre)
    kBackward,  // c = p f'(pre), the gradient of f's input; without bias
  };

  Tensor bias{};  // (N) fp32; no tensor: no bias. If c is bf16, the bias may be rounded to bf16
  Activate activate = Activate::kNo;
  Activation activation = Activation::kGelu;  // f
  Tensor pre{};
  // (N) fp32, for kBackward only: the sum of c's rows is stored here, or added. No tensor: not
  // computed. Needs the workspace of bias_backward.
  Tensor dbias{};
  Accumulate accumulate = Accumulate::kNo;
  Workspace workspace{};

  // Returns the tensor in which a GEMM without a fused epilogue stores its result for
  // finish_product().
  const Tensor& product(const Tensor& c) const { return activate == Activate::kForward ? pre : c; }
};

class Ops;

// Applies the epilogue, by separate operations, to the GEMM's result in epilogue.product(c).
void finish_product(Ops& ops, const Epilogue& epilogue, const Tensor& c);

}  // namespace muster::trainer

// The operations fused to a GEMM's output before it is stored: Ops::fused_matmul.
#pragma once

#include <cstdint>

#include "trainer_core/base/model_config.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/op_arguments.h"

namespace muster::trainer {

// The epilogue of a GEMM result p (M, N) into c (M, N); the parts apply in this order. `pre` has
// c's type.
struct Epilogue {
  enum class Activate : uint8_t {
    kNo,        // c = p + bias
    kForward,   // pre = p + bias, written; c = f(pre)
    kBackward,  // c = p f'(pre): the gradient of what f was applied to; no bias
  };

  Tensor bias{};  // (N) fp32; no tensor: none. Beside a bf16 c it may be rounded to bf16
  Activate activate = Activate::kNo;
  Activation activation = Activation::kGelu;  // f
  Tensor pre{};
  // kBackward only: (N) fp32; the sum of c's rows is stored or added. No tensor: nothing. Uses
  // bias_backward's workspace.
  Tensor dbias{};
  Accumulate accumulate = Accumulate::kNo;
  Workspace workspace{};

  // Returns the tensor in which an unfused GEMM stores its result, for finish_product.
  const Tensor& product(const Tensor& c) const { return activate == Activate::kForward ? pre : c; }
};

class Ops;

// Applies the epilogue with separate operations to the GEMM result in epilogue.product(c).
void finish_product(Ops& ops, const Epilogue& epilogue, const Tensor& c);

}  // namespace muster::trainer

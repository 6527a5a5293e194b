// What becomes of a product on its way to memory: Ops::fused_matmul.
#pragma once

#include <cstdint>

#include "trainer_core/base/model_config.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/op_arguments.h"

namespace muster::trainer {

// Of a product p (M, N) into c (M, N), the parts in this order. `pre` is of c's type.
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
  // With kBackward: (N) fp32, written with the sum of c's rows, or that added; no tensor: nothing. Takes bias_backward's workspace.
  Tensor dbias{};
  Accumulate accumulate = Accumulate::kNo;
  Workspace workspace{};

  // Where a product by itself goes, on which finish_product works then.
  const Tensor& product(const Tensor& c) const { return activate == Activate::kForward ? pre : c; }
};

class Ops;

// The epilogue by operations of its own, of the product that lies in epilogue.product(c).
void finish_product(Ops& ops, const Epilogue& epilogue, const Tensor& c);

}  // namespace muster::trainer

#include "trainer_core/ops/epilogue.h"

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

void finish_product(Ops& ops, const Epilogue& epilogue, const Tensor& c) {
  const MlpActivation f{.kind = epilogue.activation, .gated = false};
  if (epilogue.bias.data != nullptr) ops.add_bias(epilogue.bias, epilogue.product(c));
  switch (epilogue.activate) {
    case Epilogue::Activate::kNo:
      return;
    case Epilogue::Activate::kForward:
      return ops.activate(f, epilogue.pre, c);
    case Epilogue::Activate::kBackward:
      ops.activate_backward(f, c, epilogue.pre, c);
      if (epilogue.dbias.data != nullptr)
        ops.bias_backward(c, epilogue.dbias, epilogue.accumulate, epilogue.workspace);
  }
}

void Ops::fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                       Transpose transpose_b, const Tensor& c, const Epilogue& epilogue) {
  matmul(a, transpose_a, b, transpose_b, epilogue.product(c), Accumulate::kNo);
  finish_product(*this, epilogue, c);
}

}  // namespace muster::trainer

// Defines cpu_ops() as the emulated CUDA backend, for programs that link this before the trainer's
// libraries. The tests of the CPU's operations, and of whole models on them, thus test these
// kernels, too.
#include "tests/gpu/emulated/cuda_runtime.h"
#include "trainer_core/ops/cuda/device/cuda.h"

namespace muster::trainer {

std::unique_ptr<Ops> cpu_ops(int /*threads*/) {
  emulated::work_at_the_call();  // as tests of the CPU's operations expect
  return cuda_ops({.scratch_bytes = size_t{4} << 20, .algorithms_path = {}});
}

}  // namespace muster::trainer

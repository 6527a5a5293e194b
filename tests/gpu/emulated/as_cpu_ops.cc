// cpu_ops() of programs that link this before the trainer's libraries: the emulated CUDA backend. So the tests that hold the CPU's
// operations, and whole models on them, hold these kernels, too.
#include "trainer_core/ops/cuda/cuda.h"

namespace muster::trainer {

std::unique_ptr<Ops> cpu_ops(int /*threads*/) {
  return cuda_ops({.scratch_bytes = size_t{4} << 20, .algorithms_path = {}});
}

}  // namespace muster::trainer

// cpu_ops() of programs that link this before the trainer's libraries: the emulated CUDA backend. So the tests that hold the CPU's
// operations, and whole models on them, hold these kernels, too.
#include "tests/gpu/emulated/cuda_runtime.h"
#include "trainer_core/ops/cuda/cuda.h"

namespace muster::trainer {

std::unique_ptr<Ops> cpu_ops(int /*threads*/) {
  emulated::work_at_the_call();  // as tests of a processor's operations expect it
  return cuda_ops({.scratch_bytes = size_t{4} << 20, .algorithms_path = {}});
}

}  // namespace muster::trainer

// Dropout masks, generated where they are used from the same counters as on the CPU: see
// DropoutMask.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/philox.cuh"

namespace muster::trainer::cuda {
namespace {

template <class T>
__global__ void dropout_kernel(Dropout args) {
  T* x = static_cast<T*>(args.x);
  const int64_t n = args.rows * args.width;
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const int64_t row = i / args.width, column = i % args.width;
    const uint32_t word = element_word(args.key, args.location, args.elements.sample(row),
                                       args.elements.element(row, column));
    x[i] = from_float<T>(word < args.threshold ? 0.0F : to_float(x[i]) * args.factor);
  }
}

}  // namespace

void dropout(cudaStream_t stream, const Dropout& args) {
  with_type(args.dtype, [&](auto number) {
    launch(stream, blocks_for(args.rows * args.width), kThreads, dropout_kernel<decltype(number)>,
           args);
  });
}

}  // namespace muster::trainer::cuda

// Rotary position embedding (Su et al., 2021), in place on queries and keys: a thread has one pair of elements.
#include "trainer_core/ops/cuda/device.cuh"
#include "trainer_core/ops/cuda/kernels.h"

namespace muster::trainer::cuda {
namespace {

template <class T>
__global__ void rope_kernel(Rope args) {
  const int64_t half = args.head_dim / 2, pairs = args.heads * half;
  for (int64_t i = global_index(); i < args.rows * pairs; i += global_count()) {
    const int64_t row = i / pairs, head = i % pairs / half, pair = i % half;
    const int64_t position = args.places.position(row);
    const int64_t start = args.starts == nullptr ? 0 : args.starts[row];
    if (start < 0 || start > position) {
      *args.fault = static_cast<int32_t>(Fault::kStart);
      continue;
    }
    const float cosine = args.cos[(position - start) * half + pair];
    const float sine = args.sign * args.sin[(position - start) * half + pair];
    T* const at = static_cast<T*>(args.qkv) + row * args.width + head * args.head_dim;
    T* const first = at + (args.neighbours ? 2 * pair : pair);
    T* const second = first + (args.neighbours ? 1 : half);
    const float a = to_float(*first), b = to_float(*second);
    *first = from_float<T>(a * cosine - b * sine);
    *second = from_float<T>(b * cosine + a * sine);
  }
}

}  // namespace

void rope(cudaStream_t stream, const Rope& args) {
  with_type(args.dtype, [&](auto number) {
    const int64_t pairs = args.rows * args.heads * (args.head_dim / 2);
    launch(stream, blocks_for(pairs), kThreads, rope_kernel<decltype(number)>, args);
  });
}

}  // namespace muster::trainer::cuda

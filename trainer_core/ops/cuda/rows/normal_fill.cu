// Normal values of a Philox stream, for initial parameters. Compiled without contraction into FMAs
// (CMakeLists.txt): every operation of common/random/normal.h is then rounded once, and the bits
// equal the CPU's.
#include "common/random/normal.h"
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/philox.cuh"

namespace muster::trainer::cuda {
namespace {

// Values per position of a stream.
constexpr int64_t kWords = 4;

// Each thread handles one position of the stream at a time, among those that a row of x overlaps:
// up to four neighbouring elements of x.
template <class T>
__global__ void fill_normal_kernel(NormalFill args) {
  const int64_t positions = args.width / kWords + 2;
  for (int64_t i = global_index(); i < args.rows * positions; i += global_count()) {
    const int64_t row = i / positions, from = args.first + row * args.pitch;
    const int64_t value = (from / kWords + i % positions) * kWords;
    uint32_t words[kWords];
    random_words(args.key, static_cast<uint64_t>(value / kWords), args.stream, words);
    T* const x = static_cast<T*>(args.x) + row * args.width;
#pragma unroll
    for (int64_t j = 0; j < kWords; ++j) {
      const int64_t column = value + j - from;
      if (column >= 0 && column < args.width)
        x[column] = from_float<T>(args.factor * normal_from_bits(words[j]));
    }
  }
}

}  // namespace

void fill_normal(cudaStream_t stream, const NormalFill& args) {
  with_type(args.dtype, [&](auto number) {
    launch(stream, blocks_for(args.rows * (args.width / kWords + 2)), kThreads,
           fill_normal_kernel<decltype(number)>, args);
  });
}

}  // namespace muster::trainer::cuda

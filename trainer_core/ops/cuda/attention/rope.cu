// Rotary position embedding (Su et al., 2021), in place on queries and keys. Each thread has a pack
// of neighbouring pairs, at the same offset in up to kHeads heads: it reads their angles once.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/vectors.cuh"

namespace muster::trainer::cuda {
namespace {

constexpr int kHeads = 4;

// Pairs (first[e], second[e]).
template <int kCount>
__device__ inline void rotate(const Pack<kCount>& cosine, const Pack<kCount>& sine,
                              Pack<kCount>& first, Pack<kCount>& second) {
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    const float a = first.of[e], b = second.of[e];
    first.of[e] = a * cosine.of[e] - b * sine.of[e];
    second.of[e] = b * cosine.of[e] + a * sine.of[e];
  }
}

// Pairs of neighbours among the 2 kCount elements of both packs.
template <int kCount>
__device__ inline void rotate_neighbours(const Pack<kCount>& cosine, const Pack<kCount>& sine,
                                         Pack<kCount>& first, Pack<kCount>& second) {
  Pack<2 * kCount> both;
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    both.of[e] = first.of[e];
    both.of[kCount + e] = second.of[e];
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    const float a = both.of[2 * e], b = both.of[2 * e + 1];
    both.of[2 * e] = a * cosine.of[e] - b * sine.of[e];
    both.of[2 * e + 1] = b * cosine.of[e] + a * sine.of[e];
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    first.of[e] = both.of[e];
    second.of[e] = both.of[kCount + e];
  }
}

template <class T, int kCount>
__global__ void rope_kernel(Rope args) {
  const int64_t half = args.head_dim / 2, packs = half / kCount;
  const int64_t groups = (args.heads + kHeads - 1) / kHeads;
  for (int64_t i = global_index(); i < args.rows * groups * packs; i += global_count()) {
    const Split offset = split(i, packs), of_group = split(offset.quotient, groups);
    const int64_t row = of_group.quotient, pair = offset.remainder * kCount;
    const int64_t head = of_group.remainder * kHeads;
    const int64_t position = args.token_rows.position(row);
    const int64_t start = args.starts == nullptr ? 0 : args.starts[row];
    if (start < 0 || start > position) {
      *args.fault = static_cast<int32_t>(Fault::kStart);
      continue;
    }
    const int64_t angle = (position - start) * half + pair;
    const Pack<kCount> cosine = load<kCount>(args.cos + angle);
    Pack<kCount> sine = load<kCount>(args.sin + angle);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sine.of[e] *= args.sign;
    // Offsets of the two packs from the head's first element: pairs are (2p, 2p + 1) or (p, p +
    // half).
    const int64_t first = args.interleaved ? 2 * pair : pair;
    const int64_t second = args.interleaved ? first + kCount : first + half;
    T* const at = static_cast<T*>(args.qkv) + row * args.width + head * args.head_dim;
    Pack<kCount> a[kHeads], b[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (head + h >= args.heads) break;
      a[h] = load<kCount>(at + h * args.head_dim + first);
      b[h] = load<kCount>(at + h * args.head_dim + second);
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (head + h >= args.heads) break;
      if (args.interleaved) {
        rotate_neighbours(cosine, sine, a[h], b[h]);
      } else {
        rotate(cosine, sine, a[h], b[h]);
      }
      store(a[h], at + h * args.head_dim + first);
      store(b[h], at + h * args.head_dim + second);
    }
  }
}

}  // namespace

void rope(cudaStream_t stream, const Rope& args) {
  const int64_t half = args.head_dim / 2, groups = ceil_div(args.heads, kHeads);
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    const bool packs = in_packs(kPack<T>, {half, args.width}, {args.qkv, args.cos, args.sin});
    with_pack<T>(packs, [&](auto pack) {
      constexpr int kCount = decltype(pack)::kElements;
      launch(stream, blocks_for(args.rows * groups * (half / kCount)), kThreads,
             rope_kernel<T, kCount>, args);
    });
  });
}

}  // namespace muster::trainer::cuda

// 16-byte accesses to rows of elements. A kernel that is bound by memory reads and writes a pack of
// neighbouring elements per thread: kPack of them where addresses and widths allow it, else one.
// Launchers choose with with_pack(). Included by .cu files alone.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "trainer_core/ops/cuda/device.cuh"

namespace muster::trainer::cuda {

constexpr size_t kPackBytes = 16;

// Elements of T in 16 bytes: 8 of bf16, 4 of fp32.
template <class T>
constexpr int kPack = static_cast<int>(kPackBytes / sizeof(T));

// The nearest bf16, ties to even, by the device's own instruction; Bf16::round's bits except for
// the payload of NaN.
template <class T>
__device__ inline T rounded(float value) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {
    T result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  }
#endif
  return from_float<T>(value);
}

// kCount neighbouring elements, in fp32 registers.
template <int kCount>
struct Pack {
  float of[kCount];
};

// Requires: `at` is a multiple of the smaller of 16 bytes and the pack's size.
template <int kCount, class T>
__device__ inline Pack<kCount> load(const T* at) {
  Pack<kCount> pack;
  constexpr int kWords = static_cast<int>(kCount * sizeof(T) / sizeof(unsigned));
  if constexpr (kWords >= 4) {
    const uint4* from = reinterpret_cast<const uint4*>(at);
#pragma unroll
    for (int word = 0; word < kWords / 4; ++word) {
      const uint4 raw = from[word];
      const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
      constexpr int kPerWord = static_cast<int>(sizeof(unsigned) / sizeof(T));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float* const to = pack.of + (word * 4 + i) * kPerWord;
        if constexpr (kPerWord == 1) {
          to[0] = __uint_as_float(words[i]);
        } else {
          to[0] = __uint_as_float(words[i] << 16);
          to[1] = __uint_as_float(words[i] & 0xffff0000U);
        }
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.of[i] = to_float(at[i]);
  }
  return pack;
}

// Requires: as load(). Rounds to T.
template <class T, int kCount>
__device__ inline void store(const Pack<kCount>& pack, T* at) {
  constexpr int kPerWord = static_cast<int>(sizeof(unsigned) / sizeof(T));
  constexpr int kWords = kCount / kPerWord;
  const auto word_of = [&](int word) {
    if constexpr (kPerWord == 1) {
      return __float_as_uint(pack.of[word]);
    } else {
      const unsigned low = rounded<T>(pack.of[2 * word]).bits;
      const unsigned high = rounded<T>(pack.of[2 * word + 1]).bits;
      return low | high << 16;
    }
  };
  if constexpr (kWords >= 4) {
    uint4* to = reinterpret_cast<uint4*>(at);
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i)
      to[i] = {word_of(4 * i), word_of(4 * i + 1), word_of(4 * i + 2), word_of(4 * i + 3)};
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(at) = {word_of(0), word_of(1)};
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = rounded<T>(pack.of[i]);
  }
}

// Combines two values of a row's pack with the rounding of the elementwise kernels, so that remat
// repeats the bits.
template <class T, int kCount>
__device__ inline Pack<kCount> rounded_pack(const Pack<kCount>& pack) {
  Pack<kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.of[i] = to_float(rounded<T>(pack.of[i]));
  return result;
}

// Quotient and remainder; in 32 bits where both fit, which takes a tenth of the instructions.
struct Split {
  int64_t quotient, remainder;
};
__device__ inline Split split(int64_t value, int64_t divisor) {
  if (((value | divisor) >> 32) == 0) {
    const auto small = static_cast<uint32_t>(value), by = static_cast<uint32_t>(divisor);
    const uint32_t quotient = small / by;
    return {quotient, small - quotient * by};
  }
  return {value / divisor, value % divisor};
}

// Host code

template <int kCount>
struct PackOf {
  static constexpr int kElements = kCount;
};

// Whether rows of `width` elements that begin at these addresses consist of whole 16-byte packs. A
// null address is no restriction.
inline bool in_packs(int pack, std::initializer_list<int64_t> widths,
                     std::initializer_list<const void*> addresses) {
  for (const int64_t width : widths)
    if (width % pack != 0) return false;
  for (const void* address : addresses)
    if (reinterpret_cast<uintptr_t>(address) % kPackBytes != 0) return false;
  return true;
}

// Calls body(PackOf<kPack<T>>()) where packs are allowed, else body(PackOf<1>()).
template <class T, class Body>
void with_pack(bool packs, const Body& body) {
  if (packs) {
    body(PackOf<kPack<T>>());
  } else {
    body(PackOf<1>());
  }
}

}  // namespace muster::trainer::cuda

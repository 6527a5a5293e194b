// 16-byte accesses to rows of elements. In a kernel that is bound by memory bandwidth, each thread
// reads and writes a pack of neighbouring elements: kPack elements if addresses and widths allow
// it, else one. Launchers select the size by with_pack(). Included by .cu files only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "trainer_core/ops/cuda/device/device.cuh"

namespace muster::trainer::cuda {

constexpr size_t kPackBytes = 16;

// Number of elements of T in 16 bytes: 8 for bf16, 4 for fp32.
template <class T>
constexpr int kPack = static_cast<int>(kPackBytes / sizeof(T));

// Returns `value` rounded to T: for bf16 to nearest, ties to even, by the device's own instruction.
// The bits equal those of Bf16::round, except for the payload of NaN.
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

// kCount neighbouring elements, as fp32 in registers.
template <int kCount>
struct Pack {
  float of[kCount];
};

// Loads a pack. Requires that the address `at` is a multiple of 16 bytes, or of the pack's size if
// that is smaller.
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

// Rounds a pack's elements to T and stores them. Has the same requirement as load().
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

// Returns the pack with its elements rounded to T and converted back. Fused kernels use it to round
// as the separate elementwise kernels do, so that recomputed layers have the same bits.
template <class T, int kCount>
__device__ inline Pack<kCount> rounded_pack(const Pack<kCount>& pack) {
  Pack<kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.of[i] = to_float(rounded<T>(pack.of[i]));
  return result;
}

// A quotient and its remainder.
struct Split {
  int64_t quotient, remainder;
};
// Divides in 32 bits if both numbers fit, which takes a tenth of the instructions.
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

// Returns whether rows of these widths that begin at these addresses consist of whole, aligned
// packs of `pack` elements. A null address is ignored.
inline bool in_packs(int pack, std::initializer_list<int64_t> widths,
                     std::initializer_list<const void*> addresses) {
  for (const int64_t width : widths)
    if (width % pack != 0) return false;
  for (const void* address : addresses)
    if (reinterpret_cast<uintptr_t>(address) % kPackBytes != 0) return false;
  return true;
}

// Calls body(PackOf<kPack<T>>()) if `packs` is true, else body(PackOf<1>()).
template <class T, class Body>
void with_pack(bool packs, const Body& body) {
  if (packs) {
    body(PackOf<kPack<T>>());
  } else {
    body(PackOf<1>());
  }
}

}  // namespace muster::trainer::cuda

// Standard normal values from random words by additions, multiplications and one square root, each
// rounded once. The bits are the same on every machine that does not fuse operations (compile the
// callers with -ffp-contract=off), and compilers vectorise the loops (with -fno-math-errno
// -fno-trapping-math). The Box-Muller method would need the library's log, sin and cos, which
// differ between processors and take ten times as long.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// CUDA's compiler compiles the functions for host and device. With -fmad=false a device computes
// the same bits as the host.
#ifdef __CUDACC__
#define MUSTER_HOST_DEVICE __host__ __device__
#else
#define MUSTER_HOST_DEVICE
#endif

namespace muster {
namespace internal {

MUSTER_HOST_DEVICE inline uint32_t word_of_float(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}
MUSTER_HOST_DEVICE inline float float_of_word(uint32_t word) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(word);
#else
  return std::bit_cast<float>(word);
#endif
}

// Returns the natural logarithm of a positive normal number (Cephes' logf polynomial). The absolute
// error is below 1e-7 near 1.
MUSTER_HOST_DEVICE inline float log_of_positive(float x) {
  // the bits of sqrt(1/2): the mantissa is scaled into [sqrt(1/2), sqrt(2))
  constexpr uint32_t kSqrtHalf = 0x3F3504F3;
  const uint32_t shifted = word_of_float(x) - kSqrtHalf;
  const int32_t exponent = static_cast<int32_t>(shifted) >> 23;
  const float f = float_of_word((shifted & 0x007FFFFFU) + kSqrtHalf) - 1.0F;
  float p = 7.0376836292e-2F;
  p = p * f - 1.1514610310e-1F;
  p = p * f + 1.1676998740e-1F;
  p = p * f - 1.2420140846e-1F;
  p = p * f + 1.4249322787e-1F;
  p = p * f - 1.6668057665e-1F;
  p = p * f + 2.0000714765e-1F;
  p = p * f - 2.4999993993e-1F;
  p = p * f + 3.3333331174e-1F;
  const float square = f * f;
  return static_cast<float>(exponent) * 0.693147180559945F + (f - 0.5F * square + p * f * square);
}

}  // namespace internal

// Returns the standard normal quantile of u = (k + 1/2) 2^-23, where k is the upper 23 bits of
// `bits`. The error is at most 3e-7 in units of the distribution function. The result is finite for
// every word, and at most 5.3 in magnitude. Method: sqrt(2) erfinv(2u - 1) in single precision, by
// Giles, "Approximating the erfinv function" (GPU Computing Gems, 2010).
MUSTER_HOST_DEVICE inline float normal_from_bits(uint32_t bits) {
  const float x = (static_cast<float>(static_cast<int32_t>(bits >> 9)) + 0.5F) * 0x1p-22F - 1.0F;
  const float w = -internal::log_of_positive((1.0F - x) * (1.0F + x));
  const float a = w - 2.5F;  // for the centre of the distribution
  float p = 2.81022636e-08F;
  p = p * a + 3.43273939e-07F;
  p = p * a - 3.5233877e-06F;
  p = p * a - 4.39150654e-06F;
  p = p * a + 0.00021858087F;
  p = p * a - 0.00125372503F;
  p = p * a - 0.00417768164F;
  p = p * a + 0.246640727F;
  p = p * a + 1.50140941F;
  const float b = std::sqrt(w) - 3.0F;  // for the tails
  float q = -0.000200214257F;
  q = q * b + 0.000100950558F;
  q = q * b + 0.00134934322F;
  q = q * b - 0.00367342844F;
  q = q * b + 0.00573950773F;
  q = q * b - 0.0076224613F;
  q = q * b + 0.00943887047F;
  q = q * b + 1.00167406F;
  q = q * b + 2.83297682F;
  constexpr float kSqrtTwo = 1.41421356F;
  return kSqrtTwo * x * (w < 5.0F ? p : q);
}

}  // namespace muster

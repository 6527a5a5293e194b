// Replaces trainer_core/ops/cuda/gemm/tensor_core.cuh where the device is emulated: the same
// functions for a CPU (tensor_core.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/gpu/emulated/cuda_runtime.h"

namespace emulated {
// Requires: all lanes of the warp call it.
void mma(float* d, const uint32_t* a, const uint32_t* b);
void load_matrices(const void* row, bool transposed, uint32_t* words);
uint32_t pack_bf16(float low, float high);
// Copies nothing until the thread waits.
void copy_async(void* to, const void* from, size_t bytes, bool exists);
void commit_copies();
void wait_for_copies(size_t groups);
void* dynamic_shared();
}  // namespace emulated

namespace muster::trainer::cuda {

inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulated::mma(d, a, b);
}
inline void load_matrices(const void* row, uint32_t (&words)[4]) {
  emulated::load_matrices(row, false, words);
}
inline void load_transposed_matrices(const void* row, uint32_t (&words)[4]) {
  emulated::load_matrices(row, true, words);
}
inline uint32_t pack_bf16(float low, float high) { return emulated::pack_bf16(low, high); }
template <int kBytes>
void copy_async(void* to, const void* from, bool exists) {
  static_assert(kBytes == 4 || kBytes == 16);
  emulated::copy_async(to, from, kBytes, exists);
}
inline void commit_copies() { emulated::commit_copies(); }
template <int kGroups>
void wait_for_copies() {
  emulated::wait_for_copies(kGroups);
}
inline void* dynamic_shared() { return emulated::dynamic_shared(); }

}  // namespace muster::trainer::cuda

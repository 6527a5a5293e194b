// PTX instructions of sm_80 and newer for which C++ has no equivalent: a warp's GEMMs on
// tensor cores, loads of their operands, and asynchronous copies. Each function is exactly one
// instruction, because the emulated device replaces this file by another one.
//
// All lanes of a warp must call mma() and load_matrices() together. The table shows the elements
// that a lane has, where g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix fragments for
// mma.m16n8k16" and "ldmatrix"; a word has two bf16 elements, the lower half first):
//
//   a (16 rows, 16 deep)    a[0] (g, 2t..)        a[1] (g + 8, 2t..)
//                           a[2] (g, 2t + 8..)    a[3] (g + 8, 2t + 8..)
//   b (16 deep, 8 columns)  b[0] (2t.., g)        b[1] (2t + 8.., g)
//   d (16 rows, 8 columns)  d[0], d[1] (g, 2t..)  d[2], d[3] (g + 8, 2t..)
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace muster::trainer::cuda {

// Computes d += a b, with bf16 operands and fp32 sums.
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  // Volatile, so that the compiler does not move it to where lanes have diverged.
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four matrices of 8 x 8 bf16 elements from shared memory: lane 8 i + r passes the address of
// row r of matrix i, a multiple of 16 bytes. words[i] becomes elements (g, 2t..) of matrix i.
__device__ inline void load_matrices(const void* row, uint32_t (&words)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
// Does the same with transposed matrices: words[i] becomes elements (2t.., g) of matrix i.
__device__ inline void load_transposed_matrices(const void* row, uint32_t (&words)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

// Rounds both values to the nearest bf16, ties to even. Returns them as one word, `low` in the
// lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

// Starts to copy 4 or 16 bytes to shared memory. Requires that both addresses have that alignment.
// If `exists` is false, writes zeros and does not read `from`. The copy is complete for this thread
// after wait_for_copies(), and for other threads after a barrier that follows it.
template <int kBytes>
__device__ inline void copy_async(void* to, const void* from, bool exists) {
  static_assert(kBytes == 4 || kBytes == 16);
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = exists ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from),
                 "r"(bytes)
                 : "memory");
  }
}
// Groups the copies that the thread has started since the last commit.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all of the thread's groups, except for the newest kGroups, are complete.
template <int kGroups>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Returns the block's dynamic shared memory, which has the size passed to launch_with_shared() and
// is aligned to 16 bytes.
__device__ inline void* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
}

}  // namespace muster::trainer::cuda

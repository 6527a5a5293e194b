// The built-in GEMM. It computes fp32 GEMMs on processors where it is faster than oneDNN's (see
// matmul.cc), and bf16 GEMMs on all processors.
//
// The structure is that of Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating
// BLAS Functionality" (TOMS 41, 2015): a block of op(b) is packed into panels that all threads
// share; each thread packs blocks of op(a) that stay in its L2 cache, and multiplies them panel by
// panel in registers. In a GEMM with few rows, packing b would take most of the time; it reads the
// operands unpacked.
#pragma once

#include <cstdint>

#include <hwy/aligned_allocator.h>

#include "trainer_core/ops/cpu/gemm_kernels.h"
#include "trainer_core/ops/cpu/matmul_shape.h"

namespace muster::trainer::cpu {

// Owns the memory of the panels, whose size does not depend on shapes: 4 MiB, and 192 KiB per
// thread. The first GEMM with a bf16 result that is deeper than a block allocates another 4 MiB.
// Calls allocate nothing else. Called by one thread at a time; GEMMs run on `threads` OpenMP
// threads if OpenMP is enabled.
class Gemm {
 public:
  explicit Gemm(int threads);

  // Computes c (m, n) = op(a) op(b), or adds it to c, for any sizes; a bf16 c cannot be added to.
  // If any of the three is bf16, a and b are multiplied as bf16: fp32 operands are rounded first.
  // Sums are fp32. The order in which an element is summed depends only on the shape, so its bits
  // do not depend on the number of threads. Accesses no memory outside the operands.
  void run(const MatmulShape& shape, MatrixIn a, MatrixIn b, MatrixOut c);

  // A range [begin, end) of a dimension.
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

 private:
  struct Block;
  struct Operands {
    GemmFormat format;
    MatrixIn a, b;
    MatrixOut c;
  };

  void run_packed(const MatmulShape& shape, const Operands& operands, int threads);
  // Computes part number `part` of `parts`, on one thread. `buffer`: index of the buffer into which
  // b is packed next.
  void run_rows(const MatmulShape& shape, const Operands& operands, Range group, int part,
                int parts, int64_t& buffer);
  void pack_b(const Block& block, int part, int parts);
  void multiply(const Block& block, int part, int parts);

  int threads_;
  hwy::AlignedFreeUniquePtr<float[]> a_panels_;  // one block per thread
  hwy::AlignedFreeUniquePtr<float[]> b_panels_;  // two buffers of one block each
  hwy::AlignedFreeUniquePtr<float[]> sums_;      // sums of a group of rows by a block's columns
};

}  // namespace muster::trainer::cpu

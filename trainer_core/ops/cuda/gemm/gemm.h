// Built-in GEMM kernels, for GEMMs that cuBLASLt does not support (operands of two types, experts'
// rows) and for nodes without cuBLASLt. bf16 GEMMs run on tensor cores.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer_core/ops/cuda/device/kernels.h"

namespace muster::trainer::cuda {

// An operand as a matrix (rows, columns): element (i, j) is at index i * row_step + j *
// column_step.
struct Operand {
  DType dtype;
  const void* data;
  int64_t row_step, column_step;

  // Returns the operand for a row-major matrix with `columns` columns, or for its transpose.
  static Operand of(DType dtype, const void* data, int64_t columns, bool transposed) {
    return transposed ? Operand{dtype, data, 1, columns} : Operand{dtype, data, columns, 1};
  }
};

// The arguments of a GEMM: c (m, n) = a (m, k) b (k, n), or c += a b. Sums are fp32. With
// `rounded`, fp32 operands are first rounded to bf16. Without it, all operands must be fp32.
struct Gemm {
  int64_t m, n, k;
  Operand a, b;
  bool rounded;
  bool accumulate;
  DType type;  // type of c, which is row-major
  void* c;
};
void multiply(cudaStream_t, const Gemm&);

// A GEMM per expert that computes rows. Rows [offsets[e], offsets[e + 1]) of a and c belong to
// expert e; its matrix b begins at element e * b_step.
struct ExpertGemm {
  Gemm gemm;  // m is the number of rows of the buffer, of all experts
  int64_t experts;
  int64_t b_step;
  const int32_t* offsets;
  FaultWord fault;
};
void multiply_rows(cudaStream_t, const ExpertGemm&);
// A GEMM per expert that computes weight gradients. k runs over rows [offsets[e], offsets[e + 1])
// of a and b; c of expert e begins at element e * c_step.
struct ExpertGradientGemm {
  Gemm gemm;  // k is the number of rows of the buffer, of all experts
  int64_t experts;
  int64_t c_step;
  const int32_t* offsets;
  FaultWord fault;
};
void multiply_gradients(cudaStream_t, const ExpertGradientGemm&);

}  // namespace muster::trainer::cuda

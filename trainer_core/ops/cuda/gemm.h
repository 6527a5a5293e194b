// Matrix products by our own kernels: for what no library takes (operands of two types, experts' rows) and where there is no library. Those
// of bf16 run on tensor cores.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer_core/ops/cuda/kernels.h"

namespace muster::trainer::cuda {

// Of a matrix (rows, columns): element (i, j) lies at i * row_step + j * column_step.
struct Operand {
  DType dtype;
  const void* data;
  int64_t row_step, column_step;

  // A row-major matrix of `columns` columns, or its transpose.
  static Operand of(DType dtype, const void* data, int64_t columns, bool transposed) {
    return transposed ? Operand{dtype, data, 1, columns} : Operand{dtype, data, columns, 1};
  }
};

// c (m, n) = a (m, k) b (k, n), or added to c. Sums are fp32; with `rounded` fp32 operands are rounded to bf16 first, without it there are no
// others.
struct Product {
  int64_t m, n, k;
  Operand a, b;
  bool rounded;
  bool accumulate;
  DType type;  // of c, row-major
  void* c;
};
void multiply(cudaStream_t, const Product&);

// The same for the rows of each expert: rows [offsets[e], offsets[e + 1]) are m of a and c; b of expert e begins e * b_step further on.
struct ExpertProduct {
  Product product;  // m: rows of the buffer
  int64_t experts;
  int64_t b_step;
  const int32_t* offsets;
  FaultWord fault;
};
void multiply_rows(cudaStream_t, const ExpertProduct&);
// And the experts' rows are k, of a and b; c of expert e begins e * c_step further on.
struct ExpertGradient {
  Product product;  // k: rows of the buffer
  int64_t experts;
  int64_t c_step;
  const int32_t* offsets;
  FaultWord fault;
};
void multiply_gradients(cudaStream_t, const ExpertGradient&);

}  // namespace muster::trainer::cuda

// GEMMs by built-in kernels, for what no library supports (operands of two types, experts' rows)
// and for nodes without the library. bf16 runs on tensor cores.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer_core/ops/cuda/kernels.h"

namespace muster::trainer::cuda {

// A matrix (rows, columns): element (i, j) is at i * row_step + j * column_step.
struct Operand {
  DType dtype;
  const void* data;
  int64_t row_step, column_step;

  // Returns a row-major matrix with `columns` columns, or its transpose.
  static Operand of(DType dtype, const void* data, int64_t columns, bool transposed) {
    return transposed ? Operand{dtype, data, 1, columns} : Operand{dtype, data, columns, 1};
  }
};

// c (m, n) = a (m, k) b (k, n), or added to c. Sums are fp32. With `rounded`, fp32 operands are
// first rounded to bf16; without it, all operands must be fp32.
struct Product {
  int64_t m, n, k;
  Operand a, b;
  bool rounded;
  bool accumulate;
  DType type;  // type of c, which is row-major
  void* c;
};
void multiply(cudaStream_t, const Product&);

// Multiplies the rows of each expert: rows [offsets[e], offsets[e + 1]) are m of a and c; b of
// expert e begins at e * b_step.
struct ExpertProduct {
  Product product;  // m: rows of the buffer
  int64_t experts;
  int64_t b_step;
  const int32_t* offsets;
  FaultWord fault;
};
void multiply_rows(cudaStream_t, const ExpertProduct&);
// The experts' rows are k, of a and b; c of expert e begins at e * c_step.
struct ExpertGradient {
  Product product;  // k: rows of the buffer
  int64_t experts;
  int64_t c_step;
  const int32_t* offsets;
  FaultWord fault;
};
void multiply_gradients(cudaStream_t, const ExpertGradient&);

}  // namespace muster::trainer::cuda

// GEMMs by oneDNN on plain row-major operands: its matmul primitive or dnnl_sgemm, whichever was
// measured to be faster for the shape. Together they reach 104–115 GF/s per core of AMD Zen 4 and
// 112–131 of Intel Sapphire Rapids (peak 134) for every shape and transposition of the benchmark
// models inside a step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "trainer_core/ops/cpu/matmul_shape.h"
#include "trainer_core/ops/cpu/vendor.h"

namespace muster::trainer::cpu {

// Owns a compiled primitive and its scratch for each shape that it has executed. One thread at a
// time.
class OneDnnMatmul {
 public:
  // `vendor` selects the faster of the two functions for a shape.
  explicit OneDnnMatmul(int threads, Vendor vendor = this_vendor());
  ~OneDnnMatmul();
  OneDnnMatmul(const OneDnnMatmul&) = delete;
  OneDnnMatmul& operator=(const OneDnnMatmul&) = delete;

  // c (m, n) = op(a) op(b) (+ c). Requires m, n, k > 0: dnnl_sgemm rejects empty matrices.
  void run(const MatmulShape& shape, const float* a, const float* b, float* c);

 private:
  struct Library;
  struct Product;

  Product& product(const MatmulShape& shape);

  int threads_;
  Vendor vendor_;
  std::unique_ptr<Library> library_;
  std::map<MatmulShape, std::unique_ptr<Product>> products_;
};

}  // namespace muster::trainer::cpu

// GEMMs by the library oneDNN on row-major operands. For each shape it uses oneDNN's matmul
// primitive or dnnl_sgemm, whichever was faster in measurements. For all shapes and transpositions
// in training steps of the benchmark models, the two reach 104–115 GFLOP/s per core of AMD Zen 4
// and 112–131 GFLOP/s of Intel Sapphire Rapids (peak 134).
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "trainer_core/ops/cpu/matmul_shape.h"
#include "trainer_core/ops/cpu/vendor.h"

namespace muster::trainer::cpu {

// Owns a compiled primitive and its scratch for each shape that it has computed. Called by one
// thread at a time.
class OneDnnMatmul {
 public:
  // `vendor`: the processor's vendor, which determines the faster function for a shape.
  explicit OneDnnMatmul(int threads, Vendor vendor = this_vendor());
  ~OneDnnMatmul();
  OneDnnMatmul(const OneDnnMatmul&) = delete;
  OneDnnMatmul& operator=(const OneDnnMatmul&) = delete;

  // Computes c (m, n) = op(a) op(b), or adds it to c. Requires m, n, k > 0, because dnnl_sgemm
  // rejects empty matrices.
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

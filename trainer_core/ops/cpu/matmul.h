// Matrix products by oneDNN on plain row-major operands: its matmul primitive or dnnl_sgemm, whichever was
// measured to be faster for the shape. Together they reach 104–115 GF/s per core of AMD Zen 4 and 112–131 of
// Intel Sapphire Rapids (peak 134) for every shape and transposition of the benchmark models inside a step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "trainer_core/ops/ops.h"

namespace muster::trainer::cpu {

// Owns a compiled primitive and its scratch for each shape it has seen. One thread at a time.
class MatmulCache {
 public:
  explicit MatmulCache(int threads);
  ~MatmulCache();
  MatmulCache(const MatmulCache&) = delete;
  MatmulCache& operator=(const MatmulCache&) = delete;

  struct Key {
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
    auto tie() const { return std::tie(m, n, k, transpose_a, transpose_b, accumulate); }
    bool operator<(const Key& other) const { return tie() < other.tie(); }
  };

  // c (m, n) = op(a) op(b) (+ c).
  void run(const Key& key, const float* a, const float* b, float* c);

 private:
  struct Library;
  struct Product;

  Product& product(const Key& key);

  int threads_;
  std::unique_ptr<Library> library_;
  std::map<Key, std::unique_ptr<Product>> products_;
};

}  // namespace muster::trainer::cpu

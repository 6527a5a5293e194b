// Matrix products of training steps: the backend's own way (cuBLASLt where it is found) beside its own kernels.
#include <array>
#include <memory>

#include "bench/gpu/gpu_bench.h"
#include "trainer_core/ops/cuda/cuda.h"

namespace muster::bench {
namespace {

using trainer::Accumulate;
using trainer::DType;
using trainer::Ops;
using trainer::Tensor;
using trainer::Transpose;

struct Product {
  const char* what;
  int64_t m, n, k;
  Transpose a, b;
  DType result;  // of bf16 products
  Accumulate accumulate;
};

// Of Llama 2 7B with 4,096 tokens: forward (x·Wᵀ), input gradient (dy·W), weight gradient (dyᵀ·x) into fp32; and a square one.
constexpr std::array kProducts = {
    Product{"square", 8192, 8192, 8192, Transpose::kNo, Transpose::kNo, DType::kBf16,
            Accumulate::kNo},
    Product{"qkv forward", 4096, 12'288, 4096, Transpose::kNo, Transpose::kYes, DType::kBf16,
            Accumulate::kNo},
    Product{"gate and up forward", 4096, 22'016, 4096, Transpose::kNo, Transpose::kYes,
            DType::kBf16, Accumulate::kNo},
    Product{"down forward", 4096, 4096, 11'008, Transpose::kNo, Transpose::kYes, DType::kBf16,
            Accumulate::kNo},
    Product{"gate and up input gradient", 4096, 4096, 22'016, Transpose::kNo, Transpose::kNo,
            DType::kBf16, Accumulate::kNo},
    Product{"gate and up weight gradient", 22'016, 4096, 4096, Transpose::kYes, Transpose::kNo,
            DType::kF32, Accumulate::kNo},
    Product{"gate and up weight gradient, added", 22'016, 4096, 4096, Transpose::kYes,
            Transpose::kNo, DType::kF32, Accumulate::kYes},
    Product{"logits", 1024, 32'000, 4096, Transpose::kNo, Transpose::kYes, DType::kF32,
            Accumulate::kNo},
};

Tensor matrix(DType dtype, void* data, int64_t rows, int64_t columns, Transpose transpose) {
  return transpose == Transpose::kYes ? Tensor::of(dtype, data, {columns, rows})
                                      : Tensor::of(dtype, data, {rows, columns});
}

}  // namespace

Json measure_products(const Bench& bench) {
  const auto own = trainer::cuda_ops({.algorithms_path = {}, .use_libraries = false});
  Json rows = Json::array();
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    for (Product product : kProducts) {
      if (bench.small) product.m /= 512, product.n /= 512, product.k /= 512;
      const auto& [what, m, n, k, transpose_a, transpose_b, wide, accumulate] = product;
      const DType result = dtype == DType::kF32 ? dtype : wide;
      const auto room = [&](DType type, int64_t elements) {
        return bench.device.memory().allocate(static_cast<size_t>(elements) *
                                              trainer::dtype_bytes(type));
      };
      const auto for_a = room(dtype, m * k), for_b = room(dtype, k * n),
                 for_c = room(result, m * n);
      const Tensor a = matrix(dtype, for_a.get(), m, k, transpose_a);
      const Tensor b = matrix(dtype, for_b.get(), k, n, transpose_b);
      const Tensor c = Tensor::of(result, for_c.get(), {m, n});
      const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n * k);
      Json row = {{"product", what},
                  {"dtype", dtype == DType::kBf16 ? "bfloat16" : "float32"},
                  {"m", m},
                  {"n", n},
                  {"k", k}};
      fill_random(bench.device, a);
      fill_random(bench.device, b);
      const auto measure = [&](Ops& ops) {
        const double seconds =
            seconds_of([&] { ops.matmul(a, transpose_a, b, transpose_b, c, accumulate); },
                       [&] { ops.synchronize(); });
        return flops / seconds * 1e-12;
      };
      const double tflops = measure(bench.device.ops());
      row["tflops"] = tflops;
      const double specified =
          dtype == DType::kBf16 ? bench.spec.bf16_tflops : bench.spec.fp32_tflops;
      if (specified > 0) row["of_specification"] = tflops / specified;
      row["own_kernels_tflops"] = measure(*own);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace muster::bench

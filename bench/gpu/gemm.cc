// Measures GEMMs of training steps: by the backend's default path (cuBLASLt if it is found) and by
// built-in kernels; and GEMMs of experts, which built-in kernels always compute.
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "bench/gpu/gpu_bench.h"
#include "trainer_core/ops/cuda/device/cuda.h"

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
  DType result;  // type of bf16 GEMMs' results
  Accumulate accumulate;
};

// Llama 2 7B with 4,096 tokens: forward (x·Wᵀ), input gradient (dy·W), weight gradient (dyᵀ·x) into
// fp32; and a square GEMM.
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

// Mixtral 8x7B with 4,096 tokens, two experts per token: gate and up projection.
struct Experts {
  int64_t count, rows, in, out;
};
constexpr Experts kExperts = {.count = 8, .rows = 8192, .in = 4096, .out = 28'672};

void measure_experts(const Bench& bench) {
  auto [count, all, in, out] = kExperts;
  if (bench.small) all /= 128, in /= 128, out /= 128;
  const auto room = [&](DType dtype, int64_t elements) {
    return bench.device.memory().allocate(static_cast<size_t>(elements) *
                                          trainer::dtype_bytes(dtype));
  };
  const auto for_x = room(DType::kBf16, all * in), for_y = room(DType::kBf16, all * out),
             for_w = room(DType::kF32, count * in * out),
             for_offsets = room(DType::kI32, count + 1);
  const Tensor x = Tensor::of(DType::kBf16, for_x.get(), {all, in});
  const Tensor y = Tensor::of(DType::kBf16, for_y.get(), {all, out});
  const Tensor w = Tensor::of(DType::kF32, for_w.get(), {count, out, in});
  const Tensor offsets = Tensor::of(DType::kI32, for_offsets.get(), {count + 1});
  std::vector<int32_t> begins;
  for (int64_t expert = 0; expert <= count; ++expert)
    begins.push_back(static_cast<int32_t>(all / count * expert));
  bench.device.memory().upload(begins.data(), offsets.data, begins.size() * sizeof(int32_t));
  fill_random(bench.device, x);
  fill_random(bench.device, w);
  Ops& ops = bench.device.ops();
  const auto measure = [&](const char* what, const std::function<void()>& call) {
    const double seconds = seconds_of(call, [&] { ops.synchronize(); });
    const double tflops =
        2.0 * static_cast<double>(all) * static_cast<double>(in * out) / seconds * 1e-12;
    Json row = {{"product", what}, {"dtype", "bfloat16"}, {"experts", count}, {"rows", all},
                {"in", in},        {"out", out},          {"tflops", tflops}};
    if (bench.spec.bf16_tflops > 0) row["of_specification"] = tflops / bench.spec.bf16_tflops;
    bench.report(std::move(row));
  };
  measure("experts forward", [&] { ops.expert_matmul(offsets, x, w, y); });
  measure("experts input gradient", [&] { ops.expert_matmul_dx(offsets, y, w, x); });
  measure("experts weight gradient",
          [&] { ops.expert_matmul_dw(offsets, y, x, w, Accumulate::kNo); });
}

}  // namespace

void measure_products(const Bench& bench) {
  const auto own = trainer::cuda_ops({.algorithms_path = {}, .use_libraries = false});
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
      bench.report(std::move(row));
    }
  }
  measure_experts(bench);
}

}  // namespace muster::bench

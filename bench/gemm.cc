// fp32 GEMM of oneDNN, as the trainer calls it, and OpenBLAS on the shapes of training steps, in turn, best of several
// runs.
// Prints JSON: GFLOP/s per library, shape, transposition and thread count.
#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "trainer_core/ops/cpu/onednn_matmul.h"

namespace {

struct Shape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// Forward (x·Wᵀ), input gradient (dy·W) and weight gradient (dyᵀ·x) of sizes S and M of bench/cpu_train.
constexpr Shape kShapes[] = {
    {2048, 256, 256, false, true},   {2048, 1376, 256, false, true}, {2048, 256, 688, false, true},
    {2048, 256, 1376, false, false}, {1376, 256, 2048, true, false}, {2048, 4096, 256, false, true},
    {2048, 512, 512, false, true},   {2048, 2752, 512, false, true}, {2048, 512, 1376, false, true},
    {2048, 512, 2752, false, false}, {2752, 512, 2048, true, false}, {2048, 8192, 512, false, true},
};
constexpr double kSecondsPerMeasurement = 0.2;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void run_openblas(const Shape& s, const float* a, const float* b, float* c) {
  const auto m = static_cast<int>(s.m);
  const auto n = static_cast<int>(s.n);
  const auto k = static_cast<int>(s.k);
  cblas_sgemm(CblasRowMajor, s.transpose_a ? CblasTrans : CblasNoTrans,
              s.transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1.0F, a, s.transpose_a ? m : k, b,
              s.transpose_b ? k : n, 0.0F, c, n);
}

template <class Gemm>
double best_gflops(const Shape& s, Gemm gemm) {
  std::vector<float> a(static_cast<size_t>(s.m * s.k), 0.5F);
  std::vector<float> b(static_cast<size_t>(s.k * s.n), 0.25F);
  std::vector<float> c(static_cast<size_t>(s.m * s.n));
  double best = 1e9;
  const double end = now_seconds() + kSecondsPerMeasurement;
  while (now_seconds() < end) {
    const double start = now_seconds();
    gemm(s, a.data(), b.data(), c.data());
    best = std::min(best, now_seconds() - start);
  }
  return 2.0 * static_cast<double>(s.m * s.n * s.k) / best / 1e9;
}

}  // namespace

int main() {
  std::printf("[\n");
  bool first = true;
  for (int threads = 1; threads <= omp_get_num_procs() && threads <= 2; ++threads) {
    muster::trainer::cpu::OneDnnMatmul onednn(threads);
    const auto run_onednn = [&](const Shape& s, const float* a, const float* b, float* c) {
      onednn.run({s.m, s.n, s.k, s.transpose_a, s.transpose_b, false}, a, b, c);
    };
    openblas_set_num_threads(threads);
    for (const Shape& s : kShapes) {
      std::printf(
          "%s  {\"threads\": %d, \"m\": %ld, \"n\": %ld, \"k\": %ld, \"transpose\": \"%c%c\", "
          "\"onednn_gflops\": %.1f, "
          "\"openblas_gflops\": %.1f}",
          first ? "" : ",\n", threads, s.m, s.n, s.k, s.transpose_a ? 'T' : 'N',
          s.transpose_b ? 'T' : 'N', best_gflops(s, run_onednn), best_gflops(s, run_openblas));
      first = false;
    }
  }
  std::printf("\n]\n");
}

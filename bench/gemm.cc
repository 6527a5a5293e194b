// fp32 GEMM of oneDNN, as the trainer calls it, of the trainer's own kernels, and of OpenBLAS, on the shapes of training
// steps and of decoding. The libraries take turns, so that whatever else the machine does disturbs all alike. Prints JSON:
// GFLOP/s of the median call per library, shape, transposition and thread count.
#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "trainer_core/ops/cpu/matmul.h"

namespace {

struct Shape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// Forward (x·Wᵀ), input gradient (dy·W) and weight gradient (dyᵀ·x) of sizes S and M of bench/cpu_train; then decoding.
constexpr Shape kShapes[] = {
    {2048, 256, 256, false, true},   {2048, 1376, 256, false, true}, {2048, 256, 688, false, true},
    {2048, 256, 1376, false, false}, {1376, 256, 2048, true, false}, {2048, 4096, 256, false, true},
    {1024, 256, 4096, false, false}, {4096, 256, 1024, true, false}, {256, 688, 2048, true, false},
    {2048, 512, 512, false, true},   {2048, 2752, 512, false, true}, {2048, 512, 1376, false, true},
    {2048, 512, 2752, false, false}, {2752, 512, 2048, true, false}, {2048, 8192, 512, false, true},
    {1, 2752, 512, false, true},     {4, 2752, 512, false, true},    {8, 2752, 512, false, true},
};
constexpr int kTurns = 6;
constexpr double kSecondsPerTurn = 0.05;
// Threads of the library before keep a core busy for up to 25 ms, waiting for their next product.
constexpr auto kPauseBetweenTurns = std::chrono::milliseconds(40);

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

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

using Product = std::function<void(const Shape&, const float* a, const float* b, float* c)>;
struct Library {
  const char* name;
  Product product;
};

// Appends the seconds of each call in one turn but the first, which wakes threads and makes plans.
void take_turn(const Shape& s, const Library& library, const float* a, const float* b, float* c,
               std::vector<double>& seconds) {
  std::this_thread::sleep_for(kPauseBetweenTurns);
  library.product(s, a, b, c);
  const double end = now_seconds() + kSecondsPerTurn;
  double now = now_seconds();
  while (now < end) {
    const double start = now;
    library.product(s, a, b, c);
    now = now_seconds();
    seconds.push_back(now - start);
  }
}

// GFLOP/s of each library's median call.
std::vector<double> measure(const Shape& s, const std::vector<Library>& libraries) {
  const std::vector<float> a(static_cast<size_t>(s.m * s.k), 0.5F);
  const std::vector<float> b(static_cast<size_t>(s.k * s.n), 0.25F);
  std::vector<float> c(static_cast<size_t>(s.m * s.n));
  std::vector<std::vector<double>> seconds(libraries.size());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < libraries.size(); ++i) {
      take_turn(s, libraries[i], a.data(), b.data(), c.data(), seconds[i]);
    }
  }
  std::vector<double> gflops;
  for (const std::vector<double>& times : seconds) {
    gflops.push_back(2.0 * static_cast<double>(s.m * s.n * s.k) / median(times) / 1e9);
  }
  return gflops;
}

Product run_matmul(muster::trainer::cpu::Matmul& matmul) {
  return [&matmul](const Shape& s, const float* a, const float* b, float* c) {
    matmul.run({s.m, s.n, s.k, s.transpose_a, s.transpose_b, false}, a, b, c);
  };
}

}  // namespace

int main() {
  using muster::trainer::cpu::Matmul;
  using muster::trainer::cpu::MatmulLibrary;
  std::printf("[\n");
  bool first = true;
  for (int threads = 1; threads <= omp_get_num_procs() && threads <= 2; ++threads) {
    Matmul onednn(threads, MatmulLibrary::kOneDnn);
    Matmul own(threads, MatmulLibrary::kOwn);
    openblas_set_num_threads(threads);
    const std::vector<Library> libraries = {
        {"own", run_matmul(own)}, {"onednn", run_matmul(onednn)}, {"openblas", run_openblas}};
    for (const Shape& s : kShapes) {
      const std::vector<double> gflops = measure(s, libraries);
      std::printf(
          "%s  {\"threads\": %d, \"m\": %ld, \"n\": %ld, \"k\": %ld, \"transpose\": \"%c%c\"",
          first ? "" : ",\n", threads, s.m, s.n, s.k, s.transpose_a ? 'T' : 'N',
          s.transpose_b ? 'T' : 'N');
      for (size_t i = 0; i < libraries.size(); ++i) {
        std::printf(", \"%s_gflops\": %.1f", libraries[i].name, gflops[i]);
      }
      std::printf("}");
      first = false;
    }
  }
  std::printf("\n]\n");
}

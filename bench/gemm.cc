// GEMM of the trainer's built-in kernels compared to libraries, on the shapes of training steps and
// of decoding: fp32 against oneDNN, as the trainer calls it, and OpenBLAS; bf16, if the processor
// supports it, against oneDNN. The libraries alternate, so that other load on the machine affects
// all alike. Prints JSON: GFLOP/s of the median call per library, shape, transposition, type and
// thread count.
#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <dnnl.hpp>

#include "trainer_core/ops/cpu/matmul.h"

namespace {

struct Shape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// Forward (x·Wᵀ), input gradient (dy·W) and weight gradient (dyᵀ·x) of sizes S and M of
// bench/cpu_train; then decoding.
constexpr Shape kShapes[] = {
    {2048, 256, 256, false, true},   {2048, 1376, 256, false, true}, {2048, 256, 688, false, true},
    {2048, 256, 1376, false, false}, {1376, 256, 2048, true, false}, {2048, 4096, 256, false, true},
    {1024, 256, 4096, false, false}, {4096, 256, 1024, true, false}, {256, 688, 2048, true, false},
    {2048, 512, 512, false, true},   {2048, 2752, 512, false, true}, {2048, 512, 1376, false, true},
    {2048, 512, 2752, false, false}, {2752, 512, 2048, true, false}, {2048, 8192, 512, false, true},
    {1, 2752, 512, false, true},     {4, 2752, 512, false, true},    {8, 2752, 512, false, true},
};
// Few rows mean decoding, which is fp32.
constexpr int64_t kFewRows = 8;
constexpr int kRounds = 6;
constexpr double kSecondsPerTurn = 0.05;
// Threads of the previous library spin for up to 25 ms, waiting for their next matmul.
constexpr auto kPauseBetweenTurns = std::chrono::milliseconds(40);

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using muster::trainer::Bf16;
using muster::trainer::cpu::Matmul;
using muster::trainer::cpu::MatmulLibrary;

// Both operands and the result in both types; one type of each is used. The second operand of a
// bf16 matmul has two copies: ours reads weights in fp32, as the trainer stores them, and rounds
// them on the way; oneDNN gets rounded ones.
struct Matrices {
  explicit Matrices(const Shape& s)
      : a(static_cast<size_t>(s.m * s.k), 0.5F),
        b(static_cast<size_t>(s.k * s.n), 0.25F),
        c(static_cast<size_t>(s.m * s.n)),
        a16(a.size(), Bf16::round(0.5F)),
        b16(b.size(), Bf16::round(0.25F)),
        c16(c.size()) {}

  std::vector<float> a, b, c;
  std::vector<Bf16> a16, b16, c16;
};

void run_openblas(const Shape& s, Matrices& x) {
  const auto m = static_cast<int>(s.m);
  const auto n = static_cast<int>(s.n);
  const auto k = static_cast<int>(s.k);
  cblas_sgemm(CblasRowMajor, s.transpose_a ? CblasTrans : CblasNoTrans,
              s.transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1.0F, x.a.data(),
              s.transpose_a ? m : k, x.b.data(), s.transpose_b ? k : n, 0.0F, x.c.data(), n);
}

// As in a step: a weight gradient, the only matmul with a transposed left operand, is fp32 and has
// two activations; the others compute an activation from an activation and a weight.
void run_own_bf16(const Shape& s, Matmul& matmul, Matrices& x) {
  const muster::trainer::cpu::MatmulShape shape{s.m, s.n, s.k, s.transpose_a, s.transpose_b, false};
  if (s.transpose_a) {
    matmul.run(shape, x.a16.data(), x.b16.data(), x.c.data());
  } else {
    matmul.run(shape, x.a16.data(), x.b.data(), x.c16.data());
  }
}

// oneDNN's matmul primitive on bf16 operands, created at the first use of a shape.
class OneDnnBf16 {
 public:
  void run(const Shape& s, Matrices& x) {
    if (&s != shape_) make(s, x);
    primitive_->execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  using Memory = dnnl::memory;

  void make(const Shape& s, Matrices& x) {
    const auto plain = Memory::format_tag::ab, transposed = Memory::format_tag::ba;
    const auto bf16 = Memory::data_type::bf16;
    const Memory::desc a({s.m, s.k}, bf16, s.transpose_a ? transposed : plain);
    const Memory::desc b({s.k, s.n}, bf16, s.transpose_b ? transposed : plain);
    const Memory::desc c({s.m, s.n}, s.transpose_a ? Memory::data_type::f32 : bf16, plain);
#if DNNL_VERSION_MAJOR >= 3
    primitive_ = std::make_unique<dnnl::matmul>(dnnl::matmul::primitive_desc(engine_, a, b, c));
#else
    primitive_ = std::make_unique<dnnl::matmul>(
        dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine_));
#endif
    a_ = Memory(a, engine_, x.a16.data());
    b_ = Memory(b, engine_, x.b16.data());
    c_ = Memory(c, engine_, s.transpose_a ? static_cast<void*>(x.c.data()) : x.c16.data());
    shape_ = &s;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  const Shape* shape_ = nullptr;
  std::unique_ptr<dnnl::matmul> primitive_;
  Memory a_, b_, c_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

using Product = std::function<void(const Shape&, Matrices&)>;
struct Library {
  const char* name;
  Product product;
};

// Appends the seconds of each call in one round except the first, which wakes threads and creates
// plans.
void time_call(const Shape& s, const Library& library, Matrices& matrices,
               std::vector<double>& seconds) {
  std::this_thread::sleep_for(kPauseBetweenTurns);
  library.product(s, matrices);
  const double end = now_seconds() + kSecondsPerTurn;
  double now = now_seconds();
  while (now < end) {
    const double start = now;
    library.product(s, matrices);
    now = now_seconds();
    seconds.push_back(now - start);
  }
}

// Returns GFLOP/s of each library's median call.
std::vector<double> measure(const Shape& s, const std::vector<Library>& libraries) {
  Matrices matrices(s);
  std::vector<std::vector<double>> seconds(libraries.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < libraries.size(); ++i) {
      time_call(s, libraries[i], matrices, seconds[i]);
    }
  }
  std::vector<double> gflops;
  for (const std::vector<double>& times : seconds) {
    gflops.push_back(2.0 * static_cast<double>(s.m * s.n * s.k) / median(times) / 1e9);
  }
  return gflops;
}

Product run_matmul(Matmul& matmul) {
  return [&matmul](const Shape& s, Matrices& x) {
    matmul.run({s.m, s.n, s.k, s.transpose_a, s.transpose_b, false}, x.a.data(), x.b.data(),
               x.c.data());
  };
}

// Prints one JSON object after `before`, the separator, and sets it for the next one.
void print_row(const char*& before, const char* dtype, int threads, const Shape& s,
               const std::vector<Library>& libraries) {
  const std::vector<double> gflops = measure(s, libraries);
  std::printf(
      "%s  {\"dtype\": \"%s\", \"threads\": %d, \"m\": %ld, \"n\": %ld, \"k\": %ld, \"transpose\": "
      "\"%c%c\"",
      before, dtype, threads, s.m, s.n, s.k, s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N');
  for (size_t i = 0; i < libraries.size(); ++i) {
    std::printf(", \"%s_gflops\": %.1f", libraries[i].name, gflops[i]);
  }
  std::printf("}");
  before = ",\n";
}

}  // namespace

int main() {
  std::printf("[\n");
  const char* before = "";
  for (int threads = 1; threads <= omp_get_num_procs() && threads <= 2; ++threads) {
    Matmul onednn(threads, MatmulLibrary::kOneDnn);
    Matmul own(threads, MatmulLibrary::kOwn);
    OneDnnBf16 onednn_bf16;
    openblas_set_num_threads(threads);
    omp_set_num_threads(threads);
    const std::vector<Library> fp32 = {
        {"own", run_matmul(own)}, {"onednn", run_matmul(onednn)}, {"openblas", run_openblas}};
    const std::vector<Library> bf16 = {
        {"own", [&](const Shape& s, Matrices& x) { run_own_bf16(s, own, x); }},
        {"onednn", [&](const Shape& s, Matrices& x) { onednn_bf16.run(s, x); }}};
    for (const Shape& s : kShapes) print_row(before, "float32", threads, s, fp32);
    if (!__builtin_cpu_supports("avx512bf16")) continue;
    for (const Shape& s : kShapes) {
      if (s.m > kFewRows) print_row(before, "bfloat16", threads, s, bf16);
    }
  }
  std::printf("\n]\n");
}

#include "trainer_core/ops/cpu/onednn_matmul.h"

#include <omp.h>

#include <dnnl.hpp>

#include "trainer_core/base/check.h"

#ifdef __SANITIZE_THREAD__
// oneDNN is not instrumented: the locks of its primitive cache are invisible, the memory behind
// them is not.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "called_from_lib:libdnnl.so\nrace:libdnnl.so\n";
}
#endif

namespace muster::trainer::cpu {
namespace {

using dnnl::memory;

memory::desc matrix(int64_t rows, int64_t columns, bool transposed) {
  return {{rows, columns},
          memory::data_type::f32,
          transposed ? memory::format_tag::ba : memory::format_tag::ab};
}

dnnl::matmul::primitive_desc describe(const MatmulShape& shape, const dnnl::engine& engine) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attr.set_post_ops(sum);
  }
  const memory::desc a = matrix(shape.m, shape.k, shape.transpose_a);
  const memory::desc b = matrix(shape.k, shape.n, shape.transpose_b);
  const memory::desc c = matrix(shape.m, shape.n, false);
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attr};
#else
  return {dnnl::matmul::desc(a, b, c), attr, engine};
#endif
}

// oneDNN takes its number of threads from the calling thread's OpenMP setting.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~ThreadCount() { omp_set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

// Selects the faster of oneDNN's two functions, as measured with bench/gemm.cc and bench/cpu_train.
// dnnl_sgemm copies panels of both operands, which gains up to 20% if the right operand is plain or
// the output wide. It loses as much on tall outputs of a transposed left operand, whose copies are
// all strided. The thresholds differ between Intel Sapphire Rapids and AMD Zen 4. Depends only on
// shape and vendor, so that results do, too.
bool sgemm_is_faster(const MatmulShape& shape, Vendor vendor) {
  if (vendor == Vendor::kIntel) {
    constexpr int64_t kTallTransposed = 1024;
    return !shape.transpose_a || shape.m < kTallTransposed;
  }
  constexpr int64_t kTall = 4096, kWide = 1024;
  if (shape.m >= kTall || shape.n >= kTall) return false;
  return !shape.transpose_b || (shape.n >= kWide && shape.n > shape.k);
}

}  // namespace

struct OneDnnMatmul::Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

struct OneDnnMatmul::Product {
  Product(const MatmulShape& shape, const dnnl::engine& engine)
      : description(describe(shape, engine)),
        primitive(description),
        a(description.src_desc(), engine, nullptr),
        b(description.weights_desc(), engine, nullptr),
        c(description.dst_desc(), engine, nullptr),
        scratch(description.scratchpad_desc(), engine) {}

  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  memory a, b, c, scratch;
};

OneDnnMatmul::OneDnnMatmul(int threads, Vendor vendor)
    : threads_(threads), vendor_(vendor), library_(std::make_unique<Library>()) {}
OneDnnMatmul::~OneDnnMatmul() = default;

OneDnnMatmul::Product& OneDnnMatmul::product(const MatmulShape& shape) {
  std::unique_ptr<Product>& slot = products_[shape];
  if (slot == nullptr) slot = std::make_unique<Product>(shape, library_->engine);
  return *slot;
}

void OneDnnMatmul::run(const MatmulShape& shape, const float* a, const float* b, float* c) {
  const ThreadCount threads(threads_);
  if (sgemm_is_faster(shape, vendor_)) {
    const dnnl_status_t status = dnnl_sgemm(
        shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', shape.m, shape.n, shape.k,
        1.0F, a, shape.transpose_a ? shape.m : shape.k, b, shape.transpose_b ? shape.k : shape.n,
        shape.accumulate ? 1.0F : 0.0F, c, shape.n);
    MUSTER_CHECK(status == dnnl_success) << "dnnl_sgemm ends with status " << status;
    return;
  }
  try {
    Product& p = product(shape);
    // oneDNN's arguments are not const, but it only reads sources.
    p.a.set_data_handle(const_cast<float*>(a));
    p.b.set_data_handle(const_cast<float*>(b));
    p.c.set_data_handle(c);
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, p.a.get()},
                                         {DNNL_ARG_WEIGHTS, p.b.get()},
                                         {DNNL_ARG_DST, p.c.get()},
                                         {DNNL_ARG_SCRATCHPAD, p.scratch.get()}};
    // The C call: the C++ one builds a hash map each time.
    const dnnl_status_t status = dnnl_primitive_execute(p.primitive.get(), library_->stream.get(),
                                                        std::size(arguments), arguments);
    MUSTER_CHECK(status == dnnl_success) << "oneDNN matmul ends with status " << status;
    library_->stream.wait();
  } catch (const dnnl::error& error) {
    MUSTER_CHECK(false) << "oneDNN matmul of (" << shape.m << ", " << shape.k << ") by (" << shape.k
                        << ", " << shape.n << "): " << error.what();
  }
}

}  // namespace muster::trainer::cpu

#include "tests/gpu/emulated/libraries.h"

#include <algorithm>
#include <cmath>
#include <typeinfo>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"
#include "trainer_core/base/check.h"
#include "trainer_core/ops/cuda/attention/attention_library.h"
#include "trainer_core/ops/cuda/device/cuda_check.h"
#include "trainer_core/ops/cuda/gemm/matrix_library.h"

namespace emulated {

Libraries& libraries() {
  static Libraries all;
  return all;
}

}  // namespace emulated

namespace muster::trainer::cuda {
namespace {

using emulated::libraries;

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

LibraryAnswer none(const char* why) { return {.kind = LibraryAnswer::Kind::kNone, .why = why}; }

// Enqueues work in stream order, like a kernel: it captures nothing but its arguments.
template <class Compute>
void start(cudaStream_t stream, const Compute& compute) {
  emulated::Work work{[compute] {
                        const emulated::DeviceMemory::Open open(emulated::memory());
                        compute();
                      },
                      typeid(Compute).name()};
  emulated::append_bytes(work.what, compute);
  MUSTER_CUDA_CHECK(emulated::enqueue(stream, std::move(work)));
}

// One head of one sequence.
class Head {
 public:
  Head(const LibraryAttentionArgs& layer, int64_t sequence, int64_t head) : l_(layer) {
    const int64_t row = sequence * l_.seq_len, key_head = head / (l_.heads / l_.kv_heads);
    query_ = row * l_.qkv_width + head * l_.head_dim;
    key_ = row * l_.qkv_width + key_head * l_.head_dim;
    out_ = row * l_.out_width + head * l_.head_dim;
    lse_ = (sequence * l_.heads + head) * l_.seq_len;
  }

  void forward() const {
    for (int64_t i = 0; i < l_.seq_len; ++i) {
      double sum = 0;
      std::vector<double> out(static_cast<size_t>(l_.head_dim));
      for (int64_t j = first(i); j <= i; ++j) {
        const double weight = std::exp(score(i, j));
        sum += weight;
        for (int64_t c = 0; c < l_.head_dim; ++c)
          out[static_cast<size_t>(c)] += weight * l_.v[key_ + j * l_.qkv_width + c].value();
      }
      l_.lse[lse_ + i] = static_cast<float>(std::log(sum));
      for (int64_t c = 0; c < l_.head_dim; ++c)
        l_.out[out_ + i * l_.out_width + c] =
            Bf16::round(static_cast<float>(out[static_cast<size_t>(c)] / sum));
    }
  }

  // Computes sums (S, h) each; for keys and values only the contribution of this query head.
  void backward(const Bf16* dout, std::vector<double>& dq, std::vector<double>& dk,
                std::vector<double>& dv) const {
    const auto at = [&](int64_t row, int64_t c) {
      return static_cast<size_t>(row * l_.head_dim + c);
    };
    for (int64_t i = 0; i < l_.seq_len; ++i) {
      double sum = 0;  // dot product of dout and out
      for (int64_t c = 0; c < l_.head_dim; ++c)
        sum += double{dout[out_ + i * l_.out_width + c].value()} *
               l_.out[out_ + i * l_.out_width + c].value();
      for (int64_t j = first(i); j <= i; ++j) {
        const double p = std::exp(score(i, j) - l_.lse[lse_ + i]);
        double dp = 0;
        for (int64_t c = 0; c < l_.head_dim; ++c)
          dp += double{dout[out_ + i * l_.out_width + c].value()} *
                l_.v[key_ + j * l_.qkv_width + c].value();
        const double ds = p * (dp - sum) * l_.scale;
        for (int64_t c = 0; c < l_.head_dim; ++c) {
          dv[at(j, c)] += p * dout[out_ + i * l_.out_width + c].value();
          dq[at(i, c)] += ds * l_.k[key_ + j * l_.qkv_width + c].value();
          dk[at(j, c)] += ds * l_.q[query_ + i * l_.qkv_width + c].value();
        }
      }
    }
  }

  void store(const std::vector<double>& sums, bool of_keys, Bf16* to) const {
    for (int64_t row = 0; row < l_.seq_len; ++row)
      for (int64_t c = 0; c < l_.head_dim; ++c)
        to[(of_keys ? key_ : query_) + row * l_.qkv_width + c] =
            Bf16::round(static_cast<float>(sums[static_cast<size_t>(row * l_.head_dim + c)]));
  }

 private:
  int64_t first(int64_t i) const {
    return l_.window == 0 ? 0 : std::max<int64_t>(0, i - l_.window + 1);
  }
  double score(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < l_.head_dim; ++c)
      sum += double{l_.q[query_ + i * l_.qkv_width + c].value()} *
             l_.k[key_ + j * l_.qkv_width + c].value();
    return sum * l_.scale;
  }

  const LibraryAttentionArgs& l_;
  int64_t query_, key_, out_, lse_;
};

class Attention final : public AttentionLibrary {
 public:
  LibraryAnswer forward(cudaStream_t stream, const LibraryAttentionArgs& layer, void* /*workspace*/,
                        size_t /*workspace_bytes*/) override {
    if (!are_aligned({layer.q, layer.k, layer.v, layer.out, layer.lse})) return none("alignment");
    ++libraries().attentions;
    start(stream, [layer] {
      for (int64_t b = 0; b < layer.batch; ++b)
        for (int64_t h = 0; h < layer.heads; ++h) Head(layer, b, h).forward();
    });
    return {};
  }

  LibraryAnswer backward(cudaStream_t stream, const LibraryAttentionArgs& layer,
                         const LibraryAttentionGradients& to, void* workspace,
                         size_t workspace_bytes) override {
    if (!are_aligned(
            {layer.q, layer.k, layer.v, layer.out, layer.lse, to.dout, to.dq, to.dk, to.dv}))
      return none("alignment");
    const size_t needs =
        static_cast<size_t>(layer.batch * layer.heads * layer.seq_len * layer.seq_len) *
        libraries().workspace_of_score;
    if (needs > workspace_bytes)
      return {.kind = LibraryAnswer::Kind::kNoRoom, .needs_bytes = needs};
    ++libraries().attention_gradients;
    start(stream, [layer, to, workspace, needs] {
      std::fill_n(static_cast<char*>(workspace), needs, 0x7f);
      const auto numbers = static_cast<size_t>(layer.seq_len * layer.head_dim);
      const int64_t group = layer.heads / layer.kv_heads;
      for (int64_t b = 0; b < layer.batch; ++b) {
        for (int64_t k = 0; k < layer.kv_heads; ++k) {
          std::vector<double> dk(numbers), dv(numbers);
          for (int64_t h = k * group; h < (k + 1) * group; ++h) {
            std::vector<double> dq(numbers);
            const Head head(layer, b, h);
            head.backward(to.dout, dq, dk, dv);
            head.store(dq, false, to.dq);
          }
          const Head head(layer, b, k * group);
          head.store(dk, true, to.dk);
          head.store(dv, true, to.dv);
        }
      }
    });
    return {};
  }

 private:
  static bool are_aligned(std::initializer_list<const void*> all) {
    return std::all_of(all.begin(), all.end(), is_aligned);
  }
};

using Kind = LibraryEpilogue::Kind;

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  constexpr double kStep = 1e-6;
  return (gelu(x + kStep) - gelu(x - kStep)) / (2 * kStep);
}

double load(DType dtype, const void* data, int64_t at) {
  return dtype == DType::kBf16 ? static_cast<const Bf16*>(data)[at].value()
                               : static_cast<const float*>(data)[at];
}
// Rounds to TF32: 10 bits of mantissa, to nearest, ties to even.
double rounded_to_tf32(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  constexpr int kBits = 11;  // includes the leading one
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, kBits)), exponent - kBits);
}
void store(DType dtype, void* data, int64_t at, double value) {
  if (dtype == DType::kBf16) {
    static_cast<Bf16*>(data)[at] = Bf16::round(static_cast<float>(value));
  } else {
    static_cast<float*>(data)[at] = static_cast<float>(value);
  }
}

double operand(const LibraryGemm& p, const void* data, int64_t at) {
  const double value = load(p.operand_type, data, at);
  return p.tf32 ? rounded_to_tf32(value) : value;
}

void compute(const LibraryGemm& p) {
  const LibraryEpilogue& e = p.epilogue;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t at = i * p.n + j;
      double sum = p.accumulate ? load(p.type, p.c, at) : 0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += operand(p, p.a, p.transpose_a ? k * p.m + i : i * p.k + k) *
               operand(p, p.b, p.transpose_b ? j * p.k + k : k * p.n + j);
      if (e.kind == Kind::kBias || e.kind == Kind::kGeluBias) sum += load(p.type, e.bias, j);
      if (e.kind == Kind::kGelu || e.kind == Kind::kGeluBias) {
        store(p.type, e.pre, at, sum);
        sum = gelu(sum);
      }
      if (e.kind == Kind::kGeluGradient) sum *= gelu_slope(load(p.type, e.pre, at));
      store(p.type, p.c, at, sum);
    }
  }
}

class Matrices final : public MatrixLibrary {
 public:
  LibraryAnswer multiply(cudaStream_t stream, const LibraryGemm& p, void* workspace,
                         size_t workspace_bytes) override {
    const LibraryEpilogue& e = p.epilogue;
    const bool has_bias = e.kind == Kind::kBias || e.kind == Kind::kGeluBias;
    const bool has_pre = e.kind != Kind::kNone && e.kind != Kind::kBias;
    MUSTER_CHECK(!p.accumulate || (p.type == DType::kF32 && e.kind == Kind::kNone))
        << "a product that is added to what is rounded or made of it";
    MUSTER_CHECK(p.operand_type == DType::kBf16 || p.type == DType::kF32) << "bf16 of fp32";
    MUSTER_CHECK(p.operand_type == DType::kF32 || !p.tf32) << "TF32 of bf16";
    MUSTER_CHECK(has_bias == (e.bias != nullptr) && is_aligned(e.bias)) << "a bias";
    MUSTER_CHECK(!has_pre || (e.pre != nullptr && is_aligned(e.pre) && p.n % 8 == 0))
        << "rows of what is activated";
    MUSTER_CHECK(!has_pre || p.type == DType::kBf16) << "GELU by an instruction's tanh in fp32";
    if (e.kind != Kind::kNone && !libraries().has_epilogues) return none("it has no epilogues");
    ++libraries().products[static_cast<size_t>(e.kind)];
    if (p.tf32) ++libraries().tf32_products;
    start(stream, [p, workspace, workspace_bytes] {
      // Overwrites the workspace, as real libraries do.
      std::fill_n(static_cast<char*>(workspace), std::min<size_t>(workspace_bytes, 4096), 0x7f);
      compute(p);
    });
    return {};
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<MatrixLibrary>> open_matrix_library(
    const std::string& /*device*/, const std::string& /*algorithms_path*/) {
  return std::make_unique<Matrices>();
}

absl::StatusOr<std::unique_ptr<AttentionLibrary>> open_attention_library() {
  return std::make_unique<Attention>();
}

}  // namespace muster::trainer::cuda

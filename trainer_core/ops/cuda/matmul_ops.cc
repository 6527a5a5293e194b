// The CUDA backend's GEMMs: by the library, with the epilogues that it supports, or by built-in
// kernels.
#include <absl/strings/str_cat.h>

#include "trainer_core/ops/cuda/cuda_ops.h"
#include "trainer_core/ops/cuda/gemm/gemm.h"

namespace muster::trainer::cuda {
namespace {

// Alignment that libraries require of operands, and alignment of pieces of the scratch.
constexpr size_t kScratchAlignment = 256;

// Hands out pieces of the scratch, from its beginning; fits() returns whether all of them had room.
class Pieces {
 public:
  explicit Pieces(const CudaMemory& scratch) : scratch_(scratch) {}

  void* take(size_t bytes) {
    void* const piece = static_cast<char*>(scratch_.data()) + used_;
    used_ += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    return fits() ? piece : nullptr;
  }
  bool fits() const { return used_ <= scratch_.bytes(); }
  size_t used() const { return used_; }
  // Returns the scratch behind the pieces.
  void* rest() const { return static_cast<char*>(scratch_.data()) + used_; }
  size_t rest_bytes() const { return scratch_.bytes() - used_; }

 private:
  const CudaMemory& scratch_;
  size_t used_ = 0;
};

// Returns whether cuBLASLt may compute the epilogue. Its GELU is the tanh approximation, like ours,
// and the rows of GELU's input must be a multiple of 8 elements wide and begin at a multiple of 16
// bytes (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, _AUX_POINTER). Only in bf16: cuBLASLt does not
// document the precision of its tanh, and the device's tanh instruction is off by 2^-11.
bool library_supports(const Epilogue& epilogue, const Tensor& c) {
  constexpr int64_t kRowMultiple = 8;
  constexpr uintptr_t kAlignment = 16;
  if (epilogue.activate == Epilogue::Activate::kNo) return epilogue.bias.data != nullptr;
  return epilogue.activation == Activation::kGelu && c.dtype == DType::kBf16 &&
         c.dim(1) % kRowMultiple == 0 &&
         reinterpret_cast<uintptr_t>(epilogue.pre.data) % kAlignment == 0;
}

LibraryEpilogue::Kind kind_of(const Epilogue& epilogue) {
  using Kind = LibraryEpilogue::Kind;
  switch (epilogue.activate) {
    case Epilogue::Activate::kNo:
      return Kind::kBias;
    case Epilogue::Activate::kForward:
      return epilogue.bias.data != nullptr ? Kind::kGeluBias : Kind::kGelu;
    case Epilogue::Activate::kBackward:
      return Kind::kGeluGradient;
  }
  return Kind::kNone;
}

void check_epilogue(const Epilogue& epilogue, const Tensor& c) {
  if (epilogue.bias.data != nullptr) check_size(epilogue.bias, c.dim(1), "the GEMM's bias");
  if (epilogue.dbias.data != nullptr) check_size(epilogue.dbias, c.dim(1), "dbias");
  if (epilogue.activate == Epilogue::Activate::kNo) return;
  check_size(epilogue.pre, c.elements(), "what is activated");
  (void)same_type({c, epilogue.pre});
}

}  // namespace

void CudaOps::matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                     const Tensor& c, Accumulate accumulate) {
  const bool ta = transpose_a == Transpose::kYes, tb = transpose_b == Transpose::kYes;
  const auto [m, n, k] = matmul_sizes(a, ta, b, tb, c);
  if (m == 0 || n == 0) return;
  // A bf16 result is always overwritten, as on the CPU.
  const bool adds = accumulate == Accumulate::kYes && c.dtype == DType::kF32;
  if (multiply_by_library(a, ta, b, tb, c, adds, nullptr)) return;
  const bool rounded =
      a.dtype == DType::kBf16 || b.dtype == DType::kBf16 || c.dtype == DType::kBf16;
  multiply(stream_, {.m = m,
                     .n = n,
                     .k = k,
                     .a = Operand::of(a.dtype, a.float_data(), a.dim(1), ta),
                     .b = Operand::of(b.dtype, b.float_data(), b.dim(1), tb),
                     .rounded = rounded,
                     .accumulate = adds,
                     .type = c.dtype,
                     .c = c.float_data()});
}

void CudaOps::fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                           Transpose transpose_b, const Tensor& c, const Epilogue& epilogue) {
  const bool ta = transpose_a == Transpose::kYes, tb = transpose_b == Transpose::kYes;
  (void)matmul_sizes(a, ta, b, tb, c);
  check_epilogue(epilogue, c);
  if (c.elements() == 0 || !library_supports(epilogue, c) ||
      !multiply_by_library(a, ta, b, tb, c, /*accumulate=*/false, &epilogue))
    return Ops::fused_matmul(a, transpose_a, b, transpose_b, c, epilogue);
  // The library would round dbias to bf16.
  if (epilogue.dbias.data != nullptr)
    bias_backward(c, epilogue.dbias, epilogue.accumulate, epilogue.workspace);
}

// The scratch holds operands that are rounded first, a bias, and behind them the library's
// workspace.
bool CudaOps::multiply_by_library(const Tensor& a, bool ta, const Tensor& b, bool tb,
                                  const Tensor& c, bool accumulate, const Epilogue* epilogue) {
  const auto [m, n, k] = matmul_sizes(a, ta, b, tb, c);
  if (library_ == nullptr || k == 0) return false;
  const bool half = a.dtype == DType::kBf16 || b.dtype == DType::kBf16 || c.dtype == DType::kBf16;
  Pieces pieces(scratch_);
  const auto operand = [&](const Tensor& x) -> const void* {
    if (!half || x.dtype == DType::kBf16) return x.float_data();
    void* const rounded = pieces.take(static_cast<size_t>(x.elements()) * sizeof(Bf16));
    if (rounded != nullptr)
      convert(stream_, x.elements(), DType::kF32, x.data, DType::kBf16, rounded);
    return rounded;
  };
  LibraryGemm gemm{.m = m,
                   .n = n,
                   .k = k,
                   .transpose_a = ta,
                   .transpose_b = tb,
                   .accumulate = accumulate,
                   .operand_type = half ? DType::kBf16 : DType::kF32,
                   .a = operand(a),
                   .b = operand(b),
                   .type = c.dtype,
                   .c = c.float_data(),
                   .epilogue = {},
                   .tf32 = !half && allows_tf32_};
  if (epilogue != nullptr) {
    gemm.epilogue = {.kind = kind_of(*epilogue), .bias = nullptr, .pre = epilogue->pre.data};
    const bool with_bias = epilogue->bias.data != nullptr;
    // The library requires an aligned bias of c's type.
    if (with_bias) gemm.epilogue.bias = pieces.take(static_cast<size_t>(n) * dtype_bytes(c.dtype));
    if (with_bias && pieces.fits())
      convert(stream_, n, DType::kF32, epilogue->bias.f32(), c.dtype, gemm.epilogue.bias);
  }
  LibraryAnswer answer{.kind = LibraryAnswer::Kind::kNoRoom, .needs_bytes = pieces.used()};
  if (pieces.fits()) answer = library_->multiply(stream_, gemm, pieces.rest(), pieces.rest_bytes());
  if (answer.is_done()) return true;
  notes_.add(
      "cuBLASLt", {"product", {m, n, k, half ? 1 : 0, epilogue == nullptr ? 0 : 1}},
      [&, m = m, n = n, k = k] {
        return absl::StrCat(epilogue == nullptr ? "" : "bias and GELU of ",
                            "products of (m, n, k) = (", m, ", ", n, ", ", k, ") of ",
                            half ? "bf16" : "fp32");
      },
      answer, scratch_.bytes());
  return false;
}

}  // namespace muster::trainer::cuda

// GEMMs by cuBLASLt. The library is not linked, but loaded at run time if it is present, so that
// the same build also runs on nodes without it; there, built-in kernels (gemm.h) compute the GEMMs.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/dtype.h"
#include "trainer_core/ops/cuda/device/library_answer.h"

namespace muster::trainer::cuda {

// The operation applied to the GEMM's result p (m, n) before it is written.
struct LibraryEpilogue {
  enum class Kind : uint8_t {
    kNone,
    kBias,          // c = p + bias
    kGelu,          // pre = p, c = gelu(pre), by its tanh approximation
    kGeluBias,      // pre = p + bias, c = gelu(pre)
    kGeluGradient,  // c = p gelu'(pre)
  };
  Kind kind = Kind::kNone;
  void* bias = nullptr;  // (n), of c's type
  // (m, n), of c's type. Begins at a multiple of 16 bytes; n is a multiple of 8.
  void* pre = nullptr;
};

// The arguments of a GEMM: c (m, n) = op(a) op(b), or c += op(a) op(b), row-major as in
// Ops::matmul. a and b have the same type; c is fp32 or has that type, too.
struct LibraryGemm {
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  DType operand_type;
  const void* a;
  const void* b;
  DType type;
  void* c;
  LibraryEpilogue epilogue{};
  // Whether operands of fp32 are rounded to TF32 (10 bits of mantissa) for the tensor cores. Sums
  // are fp32 either way.
  bool tf32 = false;
};

// cuBLASLt on one device. Called by one thread at a time.
class MatrixLibrary {
 public:
  virtual ~MatrixLibrary() = default;

  // `workspace` is device memory; its contents do not survive the call.
  virtual LibraryAnswer multiply(cudaStream_t stream, const LibraryGemm& gemm, void* workspace,
                                 size_t workspace_bytes) = 0;
};

// Loads the library. Returns NotFound if there is no libcublasLt.so of this build's major version,
// or if the library lacks functions. `algorithms_path`: see CudaOptions; `device`: the device's
// name, a part of the keys in that file.
absl::StatusOr<std::unique_ptr<MatrixLibrary>> open_matrix_library(
    const std::string& device, const std::string& algorithms_path);

}  // namespace muster::trainer::cuda

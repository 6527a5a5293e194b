// cuBLASLt, where its library is found when the process runs: nothing links it, so that a build runs on machines without it, with our own
// products (gemm.h).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/dtype.h"
#include "trainer_core/ops/cuda/library_answer.h"

namespace muster::trainer::cuda {

// What becomes of a written product p (m, n).
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
  void* pre = nullptr;  // (m, n), of c's type, from a multiple of 16 bytes on; n is a multiple of 8
};

// c (m, n) = op(a) op(b), or added to c: row-major as Ops::matmul has them. a and b are of one type; c is fp32, or bf16 as they are.
struct LibraryProduct {
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  DType operand_type;
  const void* a;
  const void* b;
  DType type;
  void* c;
  LibraryEpilogue epilogue{};
};

// One thread at a time.
class MatrixLibrary {
 public:
  virtual ~MatrixLibrary() = default;

  // `workspace` is the device's; its contents do not survive.
  virtual LibraryAnswer multiply(cudaStream_t stream, const LibraryProduct& product,
                                 void* workspace, size_t workspace_bytes) = 0;
};

// NotFound where there is no libcublasLt.so of this build's major version, or not all of it. `algorithms_path` is CudaOptions'; `device` goes
// into its keys.
absl::StatusOr<std::unique_ptr<MatrixLibrary>> open_matrix_library(
    const std::string& device, const std::string& algorithms_path);

}  // namespace muster::trainer::cuda

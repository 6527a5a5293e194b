// There is no cuBLASLt for CPUs: built-in kernels compute the emulated backend's GEMMs.
#include "trainer_core/ops/cuda/gemm/matrix_library.h"

namespace muster::trainer::cuda {

absl::StatusOr<std::unique_ptr<MatrixLibrary>> open_matrix_library(
    const std::string& /*device*/, const std::string& /*algorithms_path*/) {
  return absl::UnimplementedError("there is none for CPUs");
}

}  // namespace muster::trainer::cuda

// gpu_backend() of builds without CUDA.
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

absl::StatusOr<std::shared_ptr<Backend>> gpu_backend(const GpuOptions& /*options*/) {
  return absl::UnimplementedError(
      "this build of muster-trainer has no CUDA: build it with -DMUSTER_CUDA=ON");
}
int gpu_count() { return 0; }

}  // namespace muster::trainer

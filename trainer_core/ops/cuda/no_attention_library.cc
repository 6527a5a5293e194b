// Of builds without cudnn-frontend's headers, and of the emulated device: attention is our own kernels'.
#include "trainer_core/ops/cuda/attention_library.h"

namespace muster::trainer::cuda {

absl::StatusOr<std::unique_ptr<AttentionLibrary>> open_attention_library() {
  return absl::UnimplementedError("this program was built without cudnn-frontend's headers");
}

}  // namespace muster::trainer::cuda

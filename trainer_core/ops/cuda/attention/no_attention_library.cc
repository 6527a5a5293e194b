// For builds without the headers of cudnn-frontend, and for the emulated device: built-in kernels
// compute attention.
#include "trainer_core/ops/cuda/attention/attention_library.h"

namespace muster::trainer::cuda {

absl::StatusOr<std::unique_ptr<AttentionLibrary>> open_attention_library() {
  return absl::UnimplementedError("this program was built without cudnn-frontend's headers");
}

}  // namespace muster::trainer::cuda

#include "tests/gpu/nccl_device.h"

namespace muster::trainer {

absl::StatusOr<std::shared_ptr<const NcclApi>> nccl_of_device() { return open_nccl(); }

}  // namespace muster::trainer

// The NCCL for collectives on this program's device: the real library, or a replacement on the
// emulated device.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/comm/nccl_api.h"

namespace muster::trainer {

// Returns the NCCL, or the errors of open_nccl(). On the emulated device, there are two devices
// during the life of the result, and at most one result may exist at a time.
absl::StatusOr<std::shared_ptr<const NcclApi>> nccl_of_device();

}  // namespace muster::trainer

// The NCCL for collectives on this program's device: the library, or a fake on the emulated device.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/comm/nccl_api.h"

namespace muster::trainer {

// Returns open_nccl()'s errors. On the emulated device, there are two devices during the life of
// the result; at most one may exist at a time.
absl::StatusOr<std::shared_ptr<const NcclApi>> nccl_of_device();

}  // namespace muster::trainer

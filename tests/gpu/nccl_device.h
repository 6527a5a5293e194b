// The NCCL that brings together what lies on the device of this program: the library, or on the emulated device the tests' own.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/comm/nccl_api.h"

namespace muster::trainer {

// open_nccl()'s errors. As long as somebody has it the emulated device is two; one at a time there.
absl::StatusOr<std::shared_ptr<const NcclApi>> nccl_of_device();

}  // namespace muster::trainer

// Checks whether the ranks that share a GPU fit on it together. If they do not, suggests changes of
// the config.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/startup/device_reserve.h"
#include "trainer_core/startup/fitting_changes.h"

namespace muster::trainer {

// The memory of a device.
struct DeviceRoom {
  std::string device;  // the backend's description of the device
  size_t free_bytes = 0;
  // The memory that each rank will allocate in addition to its plan, except that of CUDA graphs and
  // NCCL.
  std::vector<DeviceReserve> beside{};
  // nccl: the ranks use NCCL, which needs nccl_bytes(). has_nccl: all ranks have NCCL, and would
  // use it if each had its own GPU.
  bool nccl = false;
  bool has_nccl = false;
};

// Returns the memory that a rank needs in addition to its plan: `room.beside`, CUDA graphs and
// NCCL.
std::vector<DeviceReserve> beside_plan(const TrainConfig& config, const DeviceRoom& room);

// Returns the uses of device memory by a rank with this plan: one per category of the plan that has
// device memory, followed by `beside`.
std::vector<DeviceReserve> device_uses(const MemoryPlan& plan,
                                       const std::vector<DeviceReserve>& beside);

// Returns the device bytes of the plan of each of `ranks`, which are ranks in the config's mesh, if
// they fit together. Otherwise returns ResourceExhausted with a table of the plan and the
// additional memory, one line per category. The last line of the message can be understood alone,
// because it may be the only line that is shown: "out of memory: …; what would fit: …". It has the
// changes of the config that suffice (fitting_changes.h), or a GPU for each rank. Only computes
// plans; an error needs up to some hundreds of them.
absl::StatusOr<std::vector<size_t>> check_device_room(const TrainConfig& config,
                                                      std::span<const int32_t> ranks,
                                                      const DeviceRoom& room);

// Returns this error for ranks that need `needed` bytes, with these changes.
absl::Status out_of_memory(const TrainConfig& config, std::span<const int32_t> ranks,
                           const DeviceRoom& room, size_t needed,
                           const std::vector<FittingChange>& changes);

// Returns the same error for a rank whose plan could not be allocated although it seemed to fit.
// `room.free_bytes` is the memory that is free now.
absl::Status refused_by_device(const TrainConfig& config, int32_t rank, const DeviceRoom& room);

}  // namespace muster::trainer

// Checks whether the ranks that share a GPU fit on it together, and suggests config changes if not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/startup/device_reserve.h"

namespace muster::trainer {

struct DeviceRoom {
  std::string device;  // as the backend describes it
  size_t free_bytes = 0;
  // The memory that each rank will still take beside its plan.
  std::vector<DeviceReserve> beside{};
  // `nccl`: the ranks use NCCL, which takes nccl_bytes(). `has_nccl`: all ranks have NCCL, and
  // would use it if each had its own GPU.
  bool nccl = false;
  bool has_nccl = false;
};

// The memory that a rank takes beside its plan: `room.beside`, CUDA graphs and NCCL.
std::vector<DeviceReserve> beside_plan(const TrainConfig& config, const DeviceRoom& room);

// Returns the device bytes of the plan of each of `ranks` (of the config's mesh) if they fit
// together. Otherwise ResourceExhausted, with a table of the plan and the memory beside it, one
// line per category. The last line is complete by itself, because it may be all that is shown: "out
// of memory: …; what would fit: …", with the config changes that suffice: a smaller batch, another
// remat policy, more FSDP, a GPU for each rank; or all of them together if none suffices alone.
// Computes plans only; a refusal computes some dozens of them.
absl::StatusOr<std::vector<size_t>> check_device_room(const TrainConfig& config,
                                                      std::span<const int32_t> ranks,
                                                      const DeviceRoom& room);

// Returns the same error for a rank whose plan the device refused although it seemed to fit.
// `room.free_bytes` is the memory that is free now.
absl::Status refused_by_device(const TrainConfig& config, int32_t rank, const DeviceRoom& room);

}  // namespace muster::trainer

// Whether the ranks that share a GPU have room on it together, and what would fit where they have not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/device_reserve.h"

namespace muster::trainer {

struct DeviceRoom {
  std::string device;  // as the backend describes it
  size_t free_bytes = 0;
  // What each rank takes beside its plan and has not taken yet.
  std::vector<DeviceReserve> beside{};
  // Whether ranks bring their numbers together by NCCL, which takes what nccl_bytes() says.
  bool nccl = false;
};

// What a rank of the config's takes beside its plan: the room's, CUDA graphs' and NCCL's.
std::vector<DeviceReserve> beside_plan(const TrainConfig& config, const DeviceRoom& room);

// ResourceExhausted has the plan's table, a line a category, with what is beside it, and which changes of the config would fit: a smaller batch, another remat
// policy, more FSDP, a GPU for each rank; each of them by itself, or where none does all together. `ranks` are of the config's mesh. Makes
// plans alone: a refusal takes some dozen of them.
absl::Status check_device_room(const TrainConfig& config, std::span<const int32_t> ranks,
                               const DeviceRoom& room);

}  // namespace muster::trainer

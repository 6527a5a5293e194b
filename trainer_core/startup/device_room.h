// Whether the ranks that share a GPU have room on it together, and what would fit where they have not.
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
  // What each rank takes beside its plan and has not taken yet.
  std::vector<DeviceReserve> beside{};
  // Whether ranks bring their numbers together by NCCL, which takes what nccl_bytes() says, and whether they all have it: then they would,
  // each with a GPU of its own.
  bool nccl = false;
  bool has_nccl = false;
};

// What a rank of the config's takes beside its plan: the room's, CUDA graphs' and NCCL's.
std::vector<DeviceReserve> beside_plan(const TrainConfig& config, const DeviceRoom& room);

// What the plan of each of `ranks`, which are of the config's mesh, takes of the device's memory, where they have room there together.
// ResourceExhausted has the plan's table, a line a category, with what is beside it. Its last line says all by itself, because it may be all
// that is shown: "out of memory: …; what would fit: …", which changes of the config would do: a smaller batch, another remat policy, more
// FSDP, a GPU for each rank; each of them by itself, or where none does all together. Makes plans alone: a refusal takes some dozen of them.
absl::StatusOr<std::vector<size_t>> check_device_room(const TrainConfig& config,
                                                      std::span<const int32_t> ranks,
                                                      const DeviceRoom& room);

// The same of a rank whose plan the device has refused, though there seemed to be room; `room` has what is free since then.
absl::Status refused_by_device(const TrainConfig& config, int32_t rank, const DeviceRoom& room);

}  // namespace muster::trainer

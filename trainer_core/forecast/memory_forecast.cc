#include "trainer_core/forecast/memory_forecast.h"

#include <algorithm>
#include <array>

#include "trainer_core/base/train_mesh.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/startup/device_room.h"
#include "trainer_core/startup/fitting_changes.h"
#include "trainer_core/startup/node_memory.h"

namespace muster::trainer {
namespace {

DeviceRoom room_on(const TrainConfig& config, const PlannedDevice& device) {
  DeviceRoom room{.device = device.name, .free_bytes = device.memory_bytes};
  if (!device.has_backend) return room;
  room.beside = backend_reserves(gpu_scratch_bytes(config));
  room.beside.push_back(kKernelCode);
  room.nccl = room.has_nccl = true;
  return room;
}

}  // namespace

std::vector<int32_t> largest_rank_of_each_stage(const TrainConfig& config) {
  const Mesh mesh = mesh_of(config.mesh);
  std::vector<int32_t> ranks;
  for (int32_t stage = 0; stage < mesh.degree(MeshAxis::kPipeline); ++stage) {
    MeshCoordinate coordinate{};
    coordinate[static_cast<size_t>(MeshAxis::kPipeline)] = stage;
    ranks.push_back(mesh.rank_at(coordinate));
  }
  return ranks;
}

MemoryForecast forecast_memory(const TrainConfig& requested, const PlannedDevice& device,
                               const PlanAdvice& advice) {
  TrainConfig config = requested;
  if (!device.has_backend) config.cuda_graphs = false;
  const Mesh mesh = mesh_of(config.mesh);
  const DeviceRoom room = room_on(config, device);
  const std::vector<DeviceReserve> beside = beside_plan(config, room);
  MemoryForecast forecast{.memory_bytes = device.memory_bytes};
  for (const int32_t rank : largest_rank_of_each_stage(config)) {
    const MemoryPlan plan =
        plan_training(config, /*threads=*/1, staging_of(config, rank), rank).memory();
    forecast.stages.push_back(
        {.stage = mesh.coordinate(rank)[static_cast<size_t>(MeshAxis::kPipeline)],
         .rank = rank,
         .uses = device_uses(plan, beside),
         .device_bytes = plan.device_bytes() + sum_of(beside),
         .host_bytes = plan.total_bytes() - plan.device_bytes() + kLibraryBytes});
  }
  const auto largest = std::ranges::max_element(forecast.stages, {}, &StageMemory::device_bytes);
  const auto most_host = std::ranges::max_element(forecast.stages, {}, &StageMemory::host_bytes);
  forecast.node_host_bytes = most_host->host_bytes * static_cast<size_t>(mesh.ranks_per_node());
  forecast.checkpoint_bytes = checkpoint_bytes(config);
  forecast.fits = largest->device_bytes <= device.memory_bytes;
  if (!forecast.fits && advice.is_wanted) {
    const auto changes = fitting_changes(
        config,
        {.fsdp = Fsdp::kMoreInNode,
         .changes_pipeline = true,
         .planned_slices = advice.planned_slices,
         .seconds_per_token = advice.seconds_per_token},
        device.memory_bytes, [&](const TrainConfig& changed) {
          return largest_device_bytes(forecast_memory(changed, device, {.is_wanted = false}));
        });
    forecast.problem = std::string(
        out_of_memory(config, std::array{largest->rank}, room, largest->device_bytes, changes)
            .message());
  }
  return forecast;
}

size_t largest_device_bytes(const MemoryForecast& forecast) {
  return std::ranges::max(forecast.stages, {}, &StageMemory::device_bytes).device_bytes;
}

nlohmann::json to_json(const MemoryForecast& forecast) {
  auto stages = nlohmann::json::array();
  for (const StageMemory& stage : forecast.stages) {
    auto uses = nlohmann::json::array();
    for (const auto& [name, bytes] : stage.uses) uses.push_back({{"name", name}, {"bytes", bytes}});
    stages.push_back({{"stage", stage.stage},
                      {"rank", stage.rank},
                      {"uses", std::move(uses)},
                      {"device_bytes", stage.device_bytes},
                      {"host_bytes", stage.host_bytes}});
  }
  return {{"stages", std::move(stages)},
          {"node_host_bytes", forecast.node_host_bytes},
          {"checkpoint_bytes", forecast.checkpoint_bytes},
          {"memory_bytes", forecast.memory_bytes},
          {"fits", forecast.fits},
          {"problem", forecast.problem}};
}

}  // namespace muster::trainer

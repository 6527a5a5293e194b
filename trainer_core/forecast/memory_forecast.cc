#include "trainer_core/forecast/memory_forecast.h"

#include <algorithm>
#include <array>

#include <absl/strings/str_format.h>

#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/units.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/startup/device_room.h"
#include "trainer_core/startup/fitting_changes.h"
#include "trainer_core/startup/node_memory.h"
#include "trainer_core/startup/planned_start.h"

namespace muster::trainer {
namespace {

bool is_on_cpu(const TrainConfig& config) { return config.hardware == Hardware::kCpu; }

DeviceRoom room_on(const TrainConfig& config, const PlannedDevice& device) {
  DeviceRoom room{.device = device.name, .free_bytes = device.memory_bytes};
  if (is_on_cpu(config)) room.beside.push_back({"libraries", kLibraryBytes});
  if (!device.has_backend || is_on_cpu(config)) return room;
  room.beside = backend_reserves(gpu_scratch_bytes(config));
  room.beside.push_back(kKernelCode);
  room.nccl = room.has_nccl = true;
  return room;
}

// Returns the memory plan of a rank.
MemoryPlan plan_of(const TrainConfig& config, int32_t rank) {
  const int32_t threads = std::max(planned_threads(config), 1);
  return plan_training(config, threads, staging_of(config, rank), rank).memory();
}

// Returns the memory of a rank with this plan. On CPUs all of it is that of the "device".
StageMemory memory_of(const TrainConfig& config, int32_t rank, const MemoryPlan& plan,
                      const std::vector<DeviceReserve>& beside) {
  const size_t device = is_on_cpu(config) ? plan.total_bytes() : plan.device_bytes();
  StageMemory memory{
      .stage = mesh_of(config.mesh).coordinate(rank)[static_cast<size_t>(MeshAxis::kPipeline)],
      .rank = rank,
      .uses = device_uses(plan, beside),
      .device_bytes = device + sum_of(beside),
      .host_bytes = plan.total_bytes() - plan.device_bytes() + kLibraryBytes};
  if (!is_on_cpu(config)) return memory;
  memory.host_bytes = memory.device_bytes;
  for (const MemoryCategory category : {MemoryCategory::kOffloaded, MemoryCategory::kCheckpoint})
    if (const size_t bytes = plan.category_bytes(category); bytes > 0)
      memory.uses.push_back({kMemoryCategoryNames[static_cast<size_t>(category)], bytes});
  return memory;
}

// Returns config changes with which the job fits. Ranks on the CPUs of a node share its memory.
std::vector<FittingChange> changes_for(const TrainConfig& config, const PlannedDevice& device,
                                       const PlanAdvice& advice) {
  return fitting_changes(
      config,
      {.fsdp = is_on_cpu(config) ? Fsdp::kMoreNodes : Fsdp::kMoreInNode,
       .changes_pipeline = true,
       .keeps_global_batch = advice.keeps_global_batch,
       .planned_slices = advice.planned_slices,
       .seconds_per_token = advice.seconds_per_token},
      device.memory_bytes, [&](const TrainConfig& changed) {
        return largest_device_bytes(forecast_memory(changed, device, {.is_wanted = false}));
      });
}

// Returns the error of a job on CPUs that does not fit.
std::string problem_on_cpus(const StageMemory& largest, const PlannedDevice& device,
                            const std::vector<FittingChange>& changes) {
  return absl::StrFormat("rank %d needs %.0f MiB of memory, but a rank on %s has %.0f MiB\n%s",
                         largest.rank, static_cast<double>(largest.device_bytes) / kMiB,
                         device.name, static_cast<double>(device.memory_bytes) / kMiB,
                         list_of(changes));
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
  if (!device.has_backend || is_on_cpu(config)) config.cuda_graphs = false;
  const Mesh mesh = mesh_of(config.mesh);
  const DeviceRoom room = room_on(config, device);
  const std::vector<DeviceReserve> beside = beside_plan(config, room);
  MemoryForecast forecast{.memory_bytes = device.memory_bytes};
  for (const int32_t rank : largest_rank_of_each_stage(config)) {
    forecast.stages.push_back(memory_of(config, rank, plan_of(config, rank), beside));
  }
  const auto largest = std::ranges::max_element(forecast.stages, {}, &StageMemory::device_bytes);
  const auto most_host = std::ranges::max_element(forecast.stages, {}, &StageMemory::host_bytes);
  forecast.node_host_bytes = most_host->host_bytes * static_cast<size_t>(mesh.ranks_per_node());
  forecast.checkpoint_bytes = config.only_evaluates() ? 0 : checkpoint_bytes(config);
  forecast.fits = largest->device_bytes <= device.memory_bytes;
  if (forecast.fits || !advice.is_wanted) return forecast;
  const auto changes = changes_for(config, device, advice);
  forecast.problem = is_on_cpu(config)
                         ? problem_on_cpus(*largest, device, changes)
                         : std::string(out_of_memory(config, std::array{largest->rank}, room,
                                                     largest->device_bytes, changes)
                                           .message());
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

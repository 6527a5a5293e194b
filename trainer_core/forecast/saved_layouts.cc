#include "trainer_core/forecast/saved_layouts.h"

#include <algorithm>
#include <fstream>
#include <string>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <dnnl_version.h>

#include "trainer_core/base/saved_plan.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/forecast/memory_forecast.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/startup/planned_start.h"

namespace muster::trainer {
namespace {

TrainConfig with_packing(TrainConfig config, bool packed) {
  config.dataset_type = packed ? DatasetType::kShards : DatasetType::kSynthetic;
  config.packing = true;
  return config;
}

}  // namespace

nlohmann::json saved_layouts(const TrainConfig& config, int32_t threads,
                             const std::string& device) {
  const Mesh mesh = mesh_of(config.mesh);
  auto layouts = nlohmann::json::array(), schedule = nlohmann::json::array();
  for (const int32_t rank : largest_rank_of_each_stage(config)) {
    const int32_t stage = mesh.coordinate(rank)[static_cast<size_t>(MeshAxis::kPipeline)];
    schedule.push_back(passes_text(config, stage));
    for (const bool packed : {false, true}) {
      const MemoryPlan memory =
          plan_training(with_packing(config, packed), std::max(threads, 1), Staging::kYes, rank)
              .memory();
      layouts.push_back(layout_to_json(memory, stage, packed));
    }
  }
  return {{"threads", threads},
          {"schedule", std::move(schedule)},
          {"layouts", std::move(layouts)},
          {"libraries",
           {{"oneDNN",
             absl::StrCat(DNNL_VERSION_MAJOR, ".", DNNL_VERSION_MINOR, ".", DNNL_VERSION_PATCH)}}},
          {"algorithms", stored_algorithms(config, device)}};
}

}  // namespace muster::trainer

// docs/parallelism.md has the plans' own numbers. When a plan changes, the failed test prints what the page must say.
#include <gmock/gmock.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <absl/strings/str_format.h>

#include "tests/unit/jobspec/config_files.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/model/transformer.h"

namespace muster::jobspec {
namespace {

using trainer::MemoryCategory;

constexpr double kGiB = 1 << 30;

class ParallelismPage : public ConfigFiles {
 protected:
  // Of rank 0. Adam's moments are two numbers for each parameter.
  static trainer::TransformerPlan plan_of(const trainer::TrainConfig& config) {
    const Mesh mesh = trainer::mesh_of(config.mesh);
    const trainer::Sharding sharding{
        trainer::ShardLayout::of(config.model, mesh, 0, config.activation_type()),
        config.zero_stage, trainer::RankPart::of(mesh, 0)};
    return trainer::plan_transformer(config.model, config.per_device_batch_size,
                                     config.max_target_length, config.activation_type(),
                                     config.layer_keeps(), true, 1, 2 * sharding.layout.elements(),
                                     false, sharding);
  }

  std::string row_of(const std::vector<std::string>& model, const std::string& mesh,
                     const std::vector<std::string>& keys) {
    std::vector<std::string> overrides = model;
    overrides.insert(overrides.end(), {"per_device_batch_size=1", "dtype=bfloat16"});
    overrides.insert(overrides.end(), keys.begin(), keys.end());
    const auto job = resolve(overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return "";
    const trainer::TransformerPlan plan = plan_of(job->train);
    std::string row = absl::StrFormat("| %s | %s |", model.front().substr(11), mesh);
    for (const MemoryCategory category :
         {MemoryCategory::kParameters, MemoryCategory::kGradients, MemoryCategory::kOptimizer,
          MemoryCategory::kActivations, MemoryCategory::kGathered, MemoryCategory::kWorkspace})
      row += absl::StrFormat(" %.1f |",
                             static_cast<double>(plan.memory.category_bytes(category)) / kGiB);
    return row +
           absl::StrFormat(" %.1f |\n", static_cast<double>(plan.memory.total_bytes()) / kGiB);
  }
};

TEST_F(ParallelismPage, HasThePlansNumbers) {
  std::string table =
      "| model | mesh | parameters | gradients | optimizer | activations | gathered | workspace | "
      "all |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const std::vector<std::string>& model :
       {std::vector<std::string>{"model_name=llama2-7b", "max_target_length=4096"},
        {"model_name=llama2-70b", "max_target_length=4096"},
        {"model_name=gpt3-175b", "max_target_length=2048"},
        {"model_name=GLaM64B64E", "max_target_length=2048"}}) {
    table += row_of(model, "1 rank", {});
    table += row_of(model, "fsdp=8", {"ici_fsdp_parallelism=8"});
    table += row_of(model, "fsdp=8 `zero_stage=2`", {"ici_fsdp_parallelism=8", "zero_stage=2"});
    table += row_of(model, "fsdp=8 `zero_stage=1`", {"ici_fsdp_parallelism=8", "zero_stage=1"});
    table += row_of(model, "data=8 fsdp=8", {"ici_fsdp_parallelism=8", "dcn_data_parallelism=8"});
    table += row_of(model, "fsdp=64", {"ici_fsdp_parallelism=8", "dcn_fsdp_parallelism=8"});
    table += row_of(model, "fsdp=512", {"ici_fsdp_parallelism=8", "dcn_fsdp_parallelism=64"});
    if (model.front() == "model_name=GLaM64B64E") {
      table += row_of(model, "expert=8", {"ici_expert_parallelism=8"});
      table +=
          row_of(model, "fsdp=8 expert=8", {"ici_expert_parallelism=8", "dcn_fsdp_parallelism=8"});
      table +=
          row_of(model, "fsdp=64 expert=8, no capacity",
                 {"ici_expert_parallelism=8", "dcn_fsdp_parallelism=64", "capacity_factor=-1"});
    }
    if (!model.front().starts_with("model_name=llama")) continue;
    for (const std::string axis : {"context", "sequence"}) {
      table += row_of(model, axis + "=8, 32768 tokens",
                      {"ici_" + axis + "_parallelism=8", "max_target_length=32768",
                       "per_device_batch_size=0.125"});
    }
  }
  std::ifstream file(std::string(MUSTER_SOURCE_DIR) + "/docs/parallelism.md");
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_TRUE(page.str().find(table) != std::string::npos) << "docs/parallelism.md must say:\n\n"
                                                           << table;
}

}  // namespace
}  // namespace muster::jobspec

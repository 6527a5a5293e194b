// docs/parallelism.md contains numbers of the plans. When a plan changes, the failed test prints
// the new text of the page.
#include <gmock/gmock.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <absl/strings/str_format.h>

#include "tests/paths.h"
#include "tests/unit/jobspec/config_files.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::jobspec {
namespace {

using trainer::MemoryCategory;

constexpr double kGiB = 1 << 30;

class ParallelismPage : public ConfigFiles {
 protected:
  // For rank 0.
  std::string row_of(const std::vector<std::string>& model, const std::string& mesh,
                     const std::vector<std::string>& keys) {
    std::vector<std::string> overrides = model;
    overrides.insert(overrides.end(),
                     {"per_device_batch_size=1", "dtype=bfloat16", "opt_type=adamw"});
    overrides.insert(overrides.end(), keys.begin(), keys.end());
    const auto job = resolve(overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return "";
    const trainer::TrainingPlan plan =
        trainer::plan_training(job->train, /*threads=*/1, trainer::Staging::kNo);
    std::string row = absl::StrFormat("| %s | %s |", model.front().substr(11), mesh);
    for (const MemoryCategory category :
         {MemoryCategory::kParameters, MemoryCategory::kGradients, MemoryCategory::kOptimizer,
          MemoryCategory::kActivations, MemoryCategory::kGathered, MemoryCategory::kWorkspace})
      row += absl::StrFormat(" %.1f |",
                             static_cast<double>(plan.memory().category_bytes(category)) / kGiB);
    return row +
           absl::StrFormat(" %.1f |\n", static_cast<double>(plan.memory().total_bytes()) / kGiB);
  }
};

TEST_F(ParallelismPage, MatchesThePlans) {
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
    table += row_of(
        model, "fsdp=8 tensor=8",
        {"dcn_fsdp_parallelism=8", "ici_tensor_parallelism=8", "per_device_batch_size=0.125"});
    table += row_of(
        model, "tensor=8 pipeline=8, 16 micro-batches",
        {"ici_tensor_parallelism=8", "dcn_pipeline_parallelism=8", "per_device_batch_size=0.25",
         "num_pipeline_microbatches=16", "num_pipeline_repeats=1"});
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
  std::ifstream file(source_dir() + "/docs/parallelism.md");
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_TRUE(page.str().find(table) != std::string::npos)
      << "docs/parallelism.md must contain:\n\n"
      << table;
}

}  // namespace
}  // namespace muster::jobspec

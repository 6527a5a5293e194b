// Every row of the tables that users of MaxText, Pax and AXLearn come with: a preset on that many
// GPUs has the row's parallelism, batch, sequence length and precision.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "tests/unit/jobspec/pasted_lines.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/model/param_spec.h"

namespace muster::jobspec {
namespace {

class SeedTables : public PastedLines {};

struct Row {
  const char* line;
  double billions;  // parameters by the model's name in the table
  int32_t gpus;
  int32_t data, fsdp, tensor;
  double batch_per_gpu;
  int32_t sequence;
  bool fp8 = false;
};

constexpr Row kRows[] = {
    // JAX-Toolbox's MaxText.
    {"python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-7b "
     "per_device_batch_size=2 "
     "max_target_length=4096 steps=15 remat_policy=minimal_flash attention=cudnn_flash_te "
     "scan_layers=false dataset_type=synthetic hardware=gpu",
     7, 8, 1, 8, 1, 2, 4096},
    // Pax on A100 and H100.
    {"CONFIG=Synthetic126M", 0.126, 64, 64, 1, 1, 4, 2048},
    {"CONFIG=GPT126M", 0.126, 64, 64, 1, 1, 4, 2048},
    {"CONFIG=Pile126M", 0.126, 64, 64, 1, 1, 4, 2048},
    {"CONFIG=GPT5B", 5, 256, 1, 256, 1, 8, 2048},
    {"CONFIG=Synthetic5B", 5, 256, 1, 256, 1, 8, 2048},
    {"CONFIG=GPT175B", 175, 256, 1, 256, 1, 6, 2048},
    {"CONFIG=Synthetic175B", 175, 256, 1, 256, 1, 6, 2048},
    {"CONFIG=GPT5B ENABLE_FP8=1", 5, 256, 1, 256, 1, 8, 2048, true},
    {"CONFIG=GPT175B ENABLE_FP8=1", 175, 256, 1, 256, 1, 6, 2048, true},
    // Mixture of experts.
    {"CONFIG=GLaM126M64E", 1.9, 64, 1, 64, 1, 8, 2048},
    {"CONFIG=GLaM64B64E", 1140, 512, 1, 64, 8, 4, 2048},
    // LLaMA: zero-shot, and fine-tuning.
    {"CONFIG=LLaMA7B", 7, 8, 1, 8, 1, 16, 4096},
    {"CONFIG=LLaMA13B", 13, 8, 1, 8, 1, 8, 4096},
    {"CONFIG=LLaMA70B", 70, 16, 1, 16, 1, 4, 4096},
    {"CONFIG=LLaMA7B PERCORE_BATCH_SIZE=2", 7, 16, 1, 16, 1, 2, 4096},
    {"CONFIG=LLaMA7B PERCORE_BATCH_SIZE=1", 7, 16, 1, 16, 1, 1, 4096},
    // AXLearn on one node.
    {"--module=text.gpt.c4_trainer --config=fuji-3B-v3-flash-single-host --data_dir=FAKE "
     "--jax_backend=gpu",
     3, 8, 1, 8, 1, 2, 8192},
};

// "7B" has 6.74 billion parameters, and "1024B" 997 billion.
constexpr double kNameTolerance = 0.12;

double billions_of(const ResolvedJob& job) {
  return static_cast<double>(trainer::parameter_count(trainer::model_params(job.train.model))) /
         1e9;
}

TEST_F(SeedTables, EveryRow) {
  for (const Row& row : kRows) {
    const auto job = pasted(row.line, 8, row.gpus / 8);
    ASSERT_TRUE(job.ok()) << row.line << ": " << job.status();
    EXPECT_NEAR(billions_of(*job) / row.billions, 1, kNameTolerance) << row.line;
    EXPECT_EQ(job->mesh.ranks(), row.gpus) << row.line;
    EXPECT_EQ(job->mesh.degree(MeshAxis::kData), row.data) << row.line;
    EXPECT_EQ(job->mesh.degree(MeshAxis::kFsdp), row.fsdp) << row.line;
    EXPECT_EQ(job->mesh.degree(MeshAxis::kTensor), row.tensor) << row.line;
    const double global = static_cast<double>(job->train.per_device_batch_size) *
                          static_cast<double>(job->mesh.group_size({.axes = trainer::kBatchAxes}));
    EXPECT_EQ(global, row.batch_per_gpu * row.gpus) << row.line;
    EXPECT_EQ(job->train.max_target_length, row.sequence) << row.line;
    EXPECT_EQ(job->train.dtype, trainer::ComputeType::kBfloat16) << row.line;
    EXPECT_EQ(job->train.model.quantization.enabled(), row.fp8) << row.line;
    if (std::string(row.line).starts_with("CONFIG=")) {
      EXPECT_FALSE(job->train.packing) << row.line;
    }
  }
}

// MaxText's table of TPU v5e, whose runs are the scripts of the same names: N slices of 256 chips
// with one rank per chip. The scripts share one sequence length.
struct V5eModel {
  const char* script;
  int32_t billions;
  int32_t fsdp, tensor;
  double batch_per_chip;
};
constexpr V5eModel kV5e[] = {{"16b.sh", 16, 256, 1, 6},
                             {"32b.sh", 32, 256, 1, 4},
                             {"64b.sh", 64, 256, 1, 2},
                             {"128b.sh", 128, 16, 16, 1}};

// Returns the keys of the line in a script that begins with `first`.
std::string keys_after(const std::string& script, const std::string& first) {
  std::ifstream file(source_dir() + "/scripts/v5e/" + script);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(first)) return line.substr(first.size());
  return "";
}

TEST_F(SeedTables, EveryRowOfV5e) {
  ASSERT_THAT(keys_after("common.sh", "  words=("),
              ::testing::HasSubstr(" max_target_length=2048"));
  for (const V5eModel& model : kV5e) {
    const std::string keys = keys_after(model.script, "train ");
    for (const int32_t slices : {1, 2, 4, 8, 16, 32}) {
      SCOPED_TRACE(absl::StrCat(model.script, " on ", slices, " slices"));
      const auto job = pasted(
          "python3 MaxText/train.py MaxText/configs/base.yml steps=15 "
          "max_target_length=2048 " +
              keys,
          256, slices);
      ASSERT_TRUE(job.ok()) << job.status();
      EXPECT_NEAR(billions_of(*job) / model.billions, 1, kNameTolerance);
      EXPECT_EQ(job->mesh.degree(MeshAxis::kData), slices);
      EXPECT_EQ(job->mesh.degree(MeshAxis::kFsdp), model.fsdp);
      EXPECT_EQ(job->mesh.degree(MeshAxis::kTensor), model.tensor);
      const auto groups = static_cast<double>(job->mesh.group_size({.axes = trainer::kBatchAxes}));
      EXPECT_EQ(job->train.per_device_batch_size * groups, model.batch_per_chip * 256 * slices);
      EXPECT_EQ(job->train.dtype, trainer::ComputeType::kBfloat16);
      EXPECT_FALSE(job->train.enable_checkpointing);
    }
  }
}

// MaxText's table of TPU v5p states the model and the slice alone: "v5p-128" has 64 chips. Its mesh
// here is FSDP over the chips of a slice, in groups of at most 1024 ranks.
TEST_F(SeedTables, EveryRowOfV5p) {
  for (const auto& [billions, cores] : std::vector<std::pair<int32_t, int32_t>>{{32, 128},
                                                                                {64, 128},
                                                                                {128, 256},
                                                                                {128, 512},
                                                                                {256, 1024},
                                                                                {512, 1024},
                                                                                {1024, 2048},
                                                                                {1024, 4096}}) {
    SCOPED_TRACE(absl::StrCat(billions, "B on v5p-", cores));
    const int32_t chips = cores / 2, in_group = std::min(chips, 1024);
    const auto job = pasted(absl::StrCat("python3 MaxText/train.py MaxText/configs/base.yml "
                                         "per_device_batch_size=1 dcn_fsdp_parallelism=-1 "
                                         "dataset_type=synthetic global_parameter_scale=",
                                         billions),
                            in_group, chips / in_group);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_NEAR(billions_of(*job) / billions, 1, kNameTolerance);
    EXPECT_EQ(job->mesh.degree(MeshAxis::kFsdp), chips);
    EXPECT_EQ(job->train.dtype, trainer::ComputeType::kBfloat16);
  }
  // The rows of v5p-7680 and v5p-12288: a model of its own keys, which no scale gives.
  EXPECT_THAT(error_of(pasted("python3 MaxText/train.py MaxText/configs/base.yml "
                              "dataset_type=synthetic global_parameter_scale=1160")),
              ::testing::HasSubstr("must be a power of two"));
}

}  // namespace
}  // namespace muster::jobspec

// Every row of the tables that users of MaxText, Pax and AXLearn come with: a preset on that many
// GPUs has the row's parallelism, batch, sequence length and precision.
#include <gmock/gmock.h>

#include <string>

#include "tests/unit/jobspec/pasted_lines.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

class SeedTables : public PastedLines {};

struct Row {
  const char* line;
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
     8, 1, 8, 1, 2, 4096},
    // Pax on A100 and H100.
    {"CONFIG=Synthetic126M", 64, 64, 1, 1, 4, 2048},
    {"CONFIG=GPT126M", 64, 64, 1, 1, 4, 2048},
    {"CONFIG=Pile126M", 64, 64, 1, 1, 4, 2048},
    {"CONFIG=GPT5B", 256, 1, 256, 1, 8, 2048},
    {"CONFIG=Synthetic5B", 256, 1, 256, 1, 8, 2048},
    {"CONFIG=GPT175B", 256, 1, 256, 1, 6, 2048},
    {"CONFIG=Synthetic175B", 256, 1, 256, 1, 6, 2048},
    {"CONFIG=GPT5B ENABLE_FP8=1", 256, 1, 256, 1, 8, 2048, true},
    {"CONFIG=GPT175B ENABLE_FP8=1", 256, 1, 256, 1, 6, 2048, true},
    // Mixture of experts.
    {"CONFIG=GLaM126M64E", 64, 1, 64, 1, 8, 2048},
    {"CONFIG=GLaM64B64E", 512, 1, 64, 8, 4, 2048},
    // LLaMA: zero-shot, and fine-tuning.
    {"CONFIG=LLaMA7B", 8, 1, 8, 1, 16, 4096},
    {"CONFIG=LLaMA13B", 8, 1, 8, 1, 8, 4096},
    {"CONFIG=LLaMA70B", 16, 1, 16, 1, 4, 4096},
    {"CONFIG=LLaMA7B PERCORE_BATCH_SIZE=2", 16, 1, 16, 1, 2, 4096},
    {"CONFIG=LLaMA7B PERCORE_BATCH_SIZE=1", 16, 1, 16, 1, 1, 4096},
    // AXLearn on one node.
    {"--module=text.gpt.c4_trainer --config=fuji-3B-v3-flash-single-host --data_dir=FAKE "
     "--jax_backend=gpu",
     8, 1, 8, 1, 2, 8192},
};

TEST_F(SeedTables, EveryRow) {
  for (const Row& row : kRows) {
    const auto job = pasted(row.line, 8, row.gpus / 8);
    ASSERT_TRUE(job.ok()) << row.line << ": " << job.status();
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

}  // namespace
}  // namespace muster::jobspec

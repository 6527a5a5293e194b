// Stopping and resuming with parameters in bf16, and from one type of parameters to the other.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/unit/trainer_core/recovery/resume_fixture.h"
#include "trainer_core/base/bf16.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/tools/decode.h"

namespace muster::trainer {
namespace {

using testing::Each;

// Parameters in bf16 are stored as they are trained, on one rank, on copies and in shards.
TEST_F(Resume, WeightsInBf16ResumeBitForBit) {
  for (const bool sharded : {false, true}) {
    const auto narrow = [&](const std::string& name) {
      TrainConfig with = config((sharded ? "shards-" : "copies-") + name);
      if (sharded) with = along_fsdp(with);
      with.weight_dtype = with.optimizer.mu_dtype = ComputeType::kBfloat16;
      with.dtype = sharded ? ComputeType::kFloat32 : ComputeType::kBfloat16;
      with.model.quantization.type =
          sharded ? QuantizationType::kNone : QuantizationType::kFp8Delayed;
      return with;
    };
    ASSERT_NO_FATAL_FAILURE(expect_resumes(narrow));
    const auto manifest = read_manifest(narrow("whole").checkpoint_directory + "/20");
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    for (const auto& [name, kind] : manifest->tensors(CheckpointPart::kModel)) {
      const bool is_scaling = name.ends_with("_scale") || name.ends_with("_history");
      EXPECT_EQ(kind.dtype, is_scaling ? DType::kF32 : DType::kBf16) << name;
    }
    DecodeOptions options;
    options.checkpoint = narrow("whole").checkpoint_directory + "/20";
    options.prompts = {"And it came to"};
    options.max_tokens = 3;
    EXPECT_TRUE(decode(narrow("whole"), options).ok());
  }
}

// Returns the checkpoint's parameters in the table's order, widened.
std::vector<float> stored_parameters(const TrainConfig& config, int64_t step) {
  const std::vector<ParamSpec> table = model_params(config.model);
  std::vector<float> params(static_cast<size_t>(parameter_count(table)));
  const auto status = restore_parameters(config.checkpoint_directory + "/" + std::to_string(step),
                                         {table.begin(), table.end()}, params);
  EXPECT_TRUE(status.ok()) << status;
  return params;
}

// A run may switch between the types, on any mesh: to bf16 parameters are rounded once, to fp32
// they are the same. A step with a learning rate of 0 saves what it has loaded.
TEST_F(Resume, WeightsChangeTheirTypeByOneRounding) {
  TrainConfig wide = config("switched");
  wide.steps = wide.optimizer.schedule_steps = 10;
  ASSERT_THAT(run(wide).codes, Each(ExitCode::kOk));
  std::vector<float> expected = stored_parameters(wide, 10);
  for (float& value : expected) value = Bf16::round(value).value();
  const auto loaded = [&](const TrainConfig& from, const std::string& name, int ranks,
                          ComputeType type) {
    TrainConfig to = along_fsdp(config(name, ranks));
    to.load_parameters_path = from.checkpoint_directory;
    to.weight_dtype = type;
    to.steps = 1;
    to.optimizer.learning_rate = 0;
    EXPECT_THAT(run(to).codes, Each(ExitCode::kOk));
    return to;
  };
  const TrainConfig narrow = loaded(wide, "narrow", 4, ComputeType::kBfloat16);
  EXPECT_EQ(stored_parameters(narrow, 1), expected);
  const TrainConfig again = loaded(narrow, "again", 2, ComputeType::kFloat32);
  EXPECT_EQ(stored_parameters(again, 1), expected);

  // The run continues with the optimizer's state.
  TrainConfig resumed = config("switched");
  resumed.weight_dtype = ComputeType::kBfloat16;
  resumed.steps = resumed.optimizer.schedule_steps = 12;
  const RunResult result = run(resumed);
  EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_EQ(result.losses().size(), 2U);
}

}  // namespace
}  // namespace muster::trainer

// Constants of programs whose steps differ from Muster's (step_cost.h).
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/forecast/recorded_step.h"
#include "tests/unit/trainer_core/forecast/step_machine.h"
#include "trainer_core/forecast/step_time.h"

namespace muster::trainer {
namespace {

const StepMachine kNode = machine_with(8);

double part_of(const StepTimeForecast& forecast, const std::string& name) {
  for (const auto& [part, seconds] : forecast.parts)
    if (part == name) return seconds;
  return 0;
}

// The seconds of the forward passes of all layers of a trace.
double forward_seconds(const StepTrace& trace, const StepCost& cost) {
  double seconds = 0;
  for (const TracedWork& work : trace.of(StepStream::kCompute))
    if (work.phase == StepPhase::kForward && work.layer >= 0) seconds += cost.seconds(work, trace);
  return seconds;
}

// Muster's recomputation omits each layer's last GEMM and the last layer.
TEST(ProgramConstants, WholeRecomputationTakesAsLongAsTheForwardPass) {
  StepMachine machine = kNode;
  machine.constants.kernel_us = 0;
  TrainConfig config = config_with({1, 1, 1, 1, 1, 1, 1});
  config.remat_policy = RematPolicy::kFull;
  const auto model = StepModel::record(config);
  ASSERT_TRUE(model.ok()) << model.status();
  const double forward =
      forward_seconds(model->first_stage(), StepCost(machine.device, machine.constants));
  EXPECT_LT(part_of(model->forecast(machine), kRecomputation), 0.9 * forward);
  machine.constants.whole_recomputation = 1;
  EXPECT_NEAR(part_of(model->forecast(machine), kRecomputation) / forward, 1, 1e-9);
}

TEST(ProgramConstants, WholeRecomputationNeedsRecomputedGemms) {
  TrainConfig config = config_with({1, 1, 1, 1, 1, 1, 1});
  config.remat_policy = RematPolicy::kMinimal;
  const auto model = StepModel::record(config);
  ASSERT_TRUE(model.ok()) << model.status();
  StepMachine whole = kNode;
  whole.constants.whole_recomputation = 1;
  EXPECT_EQ(model->forecast(whole).seconds, model->forecast(kNode).seconds);
}

TEST(ProgramConstants, WithoutSequenceParallelismTensorRanksRepeatNorms) {
  StepMachine repeated = kNode;
  repeated.constants.sequence_parallel = 0;
  for (const int32_t ranks : {1, 2}) {
    const StepTrace trace = trace_of(config_with({1, 1, 1, 1, 1, 1, ranks}));
    const StepCost shared_rows(kNode.device, kNode.constants);
    const StepCost all_rows(repeated.device, repeated.constants);
    int norms = 0;
    for (const TracedWork& work : trace.of(StepStream::kCompute)) {
      const bool is_norm = work.name == std::string_view("norm_backward");
      norms += is_norm;
      const double times = is_norm ? ranks : 1;
      if (!is_norm && work.kind != WorkKind::kGemm) continue;
      EXPECT_DOUBLE_EQ(all_rows.seconds(work, trace), times * shared_rows.seconds(work, trace));
    }
    EXPECT_GT(norms, 0);
  }
}

TEST(ProgramConstants, QuantizePassesCountTheBytesOfRounding) {
  TrainConfig config = config_with({1, 1, 1, 1, 1, 1, 1});
  config.model.quantization.type = QuantizationType::kFp8Delayed;
  const StepTrace trace = trace_of(config);
  StepMachine fused = kNode;
  fused.constants.quantize_passes = 0.25;
  fused.constants.memory_passes = 2;
  int rounded = 0;
  for (const TracedWork& work : trace.of(StepStream::kCompute)) {
    const std::string_view name = work.name;
    if (work.phase == StepPhase::kUpdate || (name != "quantize" && name != "dequantize")) continue;
    ++rounded;
    EXPECT_DOUBLE_EQ(StepCost(fused.device, fused.constants).seconds(work, trace),
                     StepCost(kNode.device, kNode.constants).seconds(work, trace) / 4);
  }
  EXPECT_GT(rounded, 0);
}

}  // namespace
}  // namespace muster::trainer

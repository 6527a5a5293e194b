#include "trainer_core/report/run_figures.h"

#include <gmock/gmock.h>

namespace muster::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The recipe's example: Llama 2 70B in bf16 on 64 H100, two sequences per device.
TrainConfig llama_70b() {
  TrainConfig config;
  config.per_device_batch_size = 2;
  config.max_target_length = 4096;
  config.steps = 50;
  config.dtype = ComputeType::kBfloat16;
  config.model = {.name = "llama2-70b",
                  .vocab_size = 32000,
                  .emb_dim = 8192,
                  .num_layers = 80,
                  .num_query_heads = 64,
                  .num_kv_heads = 8,
                  .head_dim = 128,
                  .mlp_dim = 28672};
  return config;
}

TEST(RunFigures, AreThoseOfTheRecipe) {
  const TrainConfig config = llama_70b();
  RunFigures figures(config, 64);
  figures.set_peaks(
      {.data_sheet = data_sheet_peak("NVIDIA H100 80GB HBM3", config), .measured_tflops = 700});
  const Throughput step = figures.of(7.908, 2 * 4096);
  EXPECT_NEAR(step.tokens_per_second, 66298.43, 0.01);
  EXPECT_NEAR(step.days_to_1t_tokens, 174.57, 0.01);
  EXPECT_NEAR(step.sequences_per_second, 128 / 7.908, 1e-9);
  // 46.54% with the recipe's rounded 1.82E+15.
  EXPECT_NEAR(step.mfu.data_sheet, 0.4654, 0.0005);
  EXPECT_LT(step.mfu.data_sheet_causal, step.mfu.data_sheet);
  EXPECT_NEAR(step.mfu.measured, step.mfu.data_sheet * 989 / 700, 1e-9);
}

TEST(RunFigures, UtilisationNeverExceedsAll) {
  const TrainConfig config = llama_70b();
  RunFigures figures(config, 64);
  figures.set_peaks({.data_sheet = std::nullopt, .measured_tflops = 1});
  EXPECT_EQ(figures.of(7.908, 2 * 4096).mfu.measured, 1);
  EXPECT_EQ(figures.of(7.908, 2 * 4096).mfu.data_sheet, 0) << "unknown";
}

TEST(RunFigures, TheSummaryHasTheMeanOfTheStepsAfterTheFirst) {
  const TrainConfig config = llama_70b();
  RunFigures figures(config, 64);
  EXPECT_THAT(figures.summary(), ElementsAre());
  figures.set_peaks(
      {.data_sheet = data_sheet_peak("NVIDIA H100 80GB HBM3", config), .measured_tflops = 700});
  figures.add(0, 60, 2 * 4096);
  for (int step = 1; step < 6; ++step) {
    EXPECT_EQ(figures.estimate_line(), "");
    figures.add(step, step == 1 ? 7.816 : 8, 2 * 4096);
  }
  EXPECT_EQ(figures.estimate_line(),
            "estimated wall time of the run: 6m 38s (50 steps of 7.963 s), 5m 50s left");
  EXPECT_THAT(
      figures.summary(),
      ElementsAre("summary: mean of 5 steps after the first: step 7.963 s, 16.07 sequences/s, "
                  "65838.9 tokens/s on 64 devices, 457.263 TFLOP/s/device",
                  HasSubstr("summary: MFU 46.23% of the data sheet's 989 TFLOP/s (H100, bfloat16)"),
                  HasSubstr("of the measured 700 TFLOP/s"),
                  "summary: 1T tokens take 175.79 days; the run of 50 steps takes 6m 38s at this "
                  "pace; last step: 8.000 s"));
  figures.add(6, 8, 2 * 4096);
  EXPECT_EQ(figures.estimate_line(), "") << "printed once";
}

TEST(RunFigures, APeakThatWasMeasuredTooLowIsNamed) {
  const TrainConfig config = llama_70b();
  RunFigures figures(config, 64);
  figures.set_peaks({.data_sheet = std::nullopt, .measured_tflops = 700});
  figures.add(0, 7.908, 2 * 4096);
  EXPECT_THAT(figures.summary(), testing::Not(testing::Contains(HasSubstr("too low"))));
  figures.set_peaks({.data_sheet = std::nullopt, .measured_tflops = 100});
  EXPECT_THAT(figures.summary(),
              testing::Contains(AllOf(HasSubstr("MFU 100.00% of the measured 100 TFLOP/s"),
                                      HasSubstr("the peak was measured too low"))));
}

TEST(RunFigures, AnUnknownPeakHasAReason) {
  const TrainConfig config = llama_70b();
  RunFigures figures(config, 64);
  Peaks peaks;
  peaks.why_unknown = "the measurements were disturbed";
  figures.set_peaks(peaks);
  figures.add(0, 7.908, 2 * 4096);
  EXPECT_THAT(figures.summary(),
              testing::Contains("summary: MFU of the measured peak is unknown: the measurements "
                                "were disturbed; a run of several steps on an idle machine "
                                "measures it"));
}

TEST(RunFigures, OneStepIsItsOwnMeanOnOneDevice) {
  const TrainConfig config = llama_70b();
  RunFigures figures(config, 1);
  figures.add(0, 8, 2 * 4096);
  EXPECT_THAT(
      figures.summary().front(),
      HasSubstr("mean of 1 step: step 8.000 s, 0.25 sequences/s, 1024.0 tokens/s on 1 device,"));
}

}  // namespace
}  // namespace muster::trainer

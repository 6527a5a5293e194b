#include "cli/plan/plan_view.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = 1 << 20;

nlohmann::json stage(int number, int64_t activations, int64_t logits) {
  auto uses = nlohmann::json::array({{{"name", "activations"}, {"bytes", activations * kMiB}}});
  if (logits > 0) uses.push_back({{"name", "logits"}, {"bytes", logits * kMiB}});
  return {{"stage", number}, {"uses", uses}, {"device_bytes", (activations + logits) * kMiB}};
}

nlohmann::json forecast_of(std::vector<nlohmann::json> stages, bool fits) {
  return {{"stages", std::move(stages)},
          {"node_host_bytes", 10 * kMiB},
          {"checkpoint_bytes", 1536 * 1024},
          {"memory_bytes", 100 * kMiB},
          {"fits", fits},
          {"problem", ""}};
}

std::string described(const nlohmann::json& forecast, bool has_backend = true) {
  const auto mesh = Mesh::resolve({.ici = {1, 2, 4, 1, 1, 1, 1}}, 1, 8);
  jobspec::ResolvedJob job(*mesh);
  job.train.model.name = "llama";
  job.train.per_device_batch_size = 3;
  job.train.max_target_length = 128;
  jobspec::PlannedMachines machines;
  machines.topology.name = "h100";
  machines.topology.device = "NVIDIA H100";
  machines.topology.has_backend = has_backend;
  machines.devices_per_node = 8;
  return describe_plan(job, machines, forecast);
}

TEST(PlanView, ShowsEachStageAndWhatRemains) {
  const std::string text = described(forecast_of({stage(0, 40, 0), stage(1, 30, 20)}, true));
  EXPECT_THAT(text, HasSubstr("machines: 1 node of 8 × NVIDIA H100 (h100)\n"));
  EXPECT_THAT(text, HasSubstr("mesh: pipeline=2 fsdp=4 (8 ranks), 12 sequences of 128 tokens in a "
                              "step\n"));
  EXPECT_THAT(text, HasSubstr("MiB PER DEVICE   STAGE 0  STAGE 1\n"
                              "activations      40.0     30.0\n"
                              "logits           -        20.0\n"
                              "together         40.0     50.0\n"
                              "of the device's  100.0    100.0\n"));
  EXPECT_THAT(text, HasSubstr("host memory: at most 10.0 MiB per node\ncheckpoint: 1.5 MiB\n"
                              "it fits: 50.0 MiB of a device's memory remain\n"));
}

TEST(PlanView, ManyStagesAreTheExtremes) {
  std::vector<nlohmann::json> stages;
  for (int i = 0; i < 16; ++i) stages.push_back(stage(i, 20 + i, 0));
  const std::string text = described(forecast_of(stages, true));
  EXPECT_THAT(text,
              AllOf(HasSubstr("of 16 pipeline stages, those that need the most and the least"),
                    HasSubstr("STAGE 15  STAGE 0\n"), HasSubstr("35.0      20.0\n"),
                    Not(HasSubstr("STAGE 7"))));
}

TEST(PlanView, AJobThatDoesNotFitHasNoRest) {
  EXPECT_THAT(described(forecast_of({stage(0, 400, 0)}, false)),
              AllOf(HasSubstr("RANK 0"), Not(HasSubstr("it fits"))));
}

TEST(PlanView, VariationsHaveABarEach) {
  const auto varied = [](std::string value, double speed, bool fits) {
    VariedPlan plan{.values = {std::move(value), "full"},
                    .problem = "",
                    .warnings = {},
                    .mesh = "fsdp=4",
                    .sequences = 8,
                    .forecast = forecast_of({stage(0, 40, 0)}, fits),
                    .figures = StepFigures()};
    plan.figures->tokens_per_second_per_device = speed;
    return plan;
  };
  std::vector<VariedPlan> plans = {varied("1", 100, true), varied("16", 200, false)};
  std::string half, whole;
  for (int i = 0; i < 20; ++i) half += "█";
  for (int i = 0; i < 40; ++i) whole += "░";
  EXPECT_THAT(describe_variations({"per_device_batch_size", "remat_policy"}, plans),
              HasSubstr(absl::StrCat("\n\ntokens/s per device (░: does not fit)\n1 full   ", half,
                                     " 100\n16 full  ", whole, " 200\n")));
  plans[1].figures.reset();
  EXPECT_THAT(describe_variations({"per_device_batch_size", "remat_policy"}, plans),
              Not(HasSubstr("tokens/s per device (")));
}

TEST(PlanView, ADeviceWithoutABackendIsNamed) {
  EXPECT_THAT(described(forecast_of({stage(0, 4, 0)}, true), /*has_backend=*/false),
              HasSubstr("the trainer has no backend for this device"));
}

}  // namespace
}  // namespace muster::cli

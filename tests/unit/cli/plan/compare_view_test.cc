#include "cli/plan/compare_view.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kComparedMiB = 1 << 20;

ComparedPlan compared(const std::string& name, const nlohmann::json& keys, int64_t mib,
                      double seconds) {
  ComparedPlan plan{
      .name = name,
      .keys = keys,
      .mesh = "fsdp=8",
      .sequences = 1024,
      .forecast = {{"stages", {{{"device_bytes", mib * kComparedMiB}}}}, {"fits", mib < 80'000}},
      .figures = StepFigures()};
  plan.figures->seconds = seconds;
  plan.figures->tokens_per_second = 1000 / seconds;
  plan.figures->mfu = 0.4 / seconds;
  plan.figures->gpu_hours = 100 * seconds;
  return plan;
}

TEST(CompareView, ListsDifferencesOfKeysAndFigures) {
  ComparedPlans plans = {
      compared("A.yml", {{"remat_policy", "full"}, {"steps", 10}, {"run_name", "a"}}, 40'000, 1),
      compared(
          "B.yml",
          {{"remat_policy", "none"}, {"steps", 10}, {"run_name", "b"}, {"mu_dtype", "bfloat16"}},
          90'000, 0.5)};
  const std::string text = describe_comparison(plans);
  EXPECT_THAT(text, HasSubstr("KEY           A.yml  B.yml\n"
                              "mu_dtype      -      bfloat16\n"
                              "remat_policy  full   none\n\n"));
  EXPECT_THAT(text, HasSubstr("PLAN                 A.yml    B.yml         DIFFERENCE\n"));
  EXPECT_THAT(text, HasSubstr("MiB per device       40000.0  90000.0       +125.0%\n"
                              "result               fits     does not fit  -\n"
                              "step, s              1        0.5           -50.0%\n"
                              "tokens/s             1,000    2,000         +100.0%\n"));
  EXPECT_THAT(text, HasSubstr("MFU, %               40.0     80.0          +100.0%\n"));
  EXPECT_THAT(text, Not(HasSubstr("cost")));
  const nlohmann::json json = to_json(plans);
  EXPECT_EQ(json["keys"]["remat_policy"], nlohmann::json({"full", "none"}));
  EXPECT_FALSE(json["keys"].contains("run_name"));
  EXPECT_EQ(json["plans"][1]["step"]["seconds"], 0.5);
  for (ComparedPlan& one : plans) one.figures->cost = 7;
  EXPECT_THAT(describe_comparison(plans),
              HasSubstr("cost                 7        7             +0.0%"));
}

TEST(CompareView, EnergyIsComparedIfBothAreKnown) {
  ComparedPlans plans = {compared("A.yml", {}, 1, 1), compared("B.yml", {}, 1, 1)};
  plans[0].figures->kilowatt_hours = 100;
  EXPECT_THAT(describe_comparison(plans), Not(HasSubstr("kWh")));
  plans[1].figures->kilowatt_hours = 50;
  plans[0].figures->energy_cost = 20;
  plans[1].figures->energy_cost = 10;
  EXPECT_THAT(describe_comparison(plans), testing::ContainsRegex("kWh +100 +50 +-50.0%\n"
                                                                 "cost of energy +20 +10 +-50.0%"));
}

TEST(CompareView, EqualJobsAndUnknownTimes) {
  ComparedPlans plans = {compared("A.yml", {{"steps", 10}}, 1, 1),
                         compared("B.yml", {{"steps", 10}}, 1, 1)};
  plans[1].figures.reset();
  const std::string text = describe_comparison(plans);
  EXPECT_THAT(text, HasSubstr("all keys that matter are equal\n"));
  EXPECT_THAT(text, Not(HasSubstr("step, s")));
  EXPECT_TRUE(to_json(plans)["plans"][1]["step"].is_null());
}

}  // namespace
}  // namespace muster::cli

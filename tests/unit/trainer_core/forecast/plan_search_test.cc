#include "trainer_core/forecast/plan_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/meshes.h"
#include "tests/unit/trainer_core/forecast/step_machine.h"
#include "tests/unit/trainer_core/setting_words.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/forecast/step_time.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

const StepMachine kSearchMachine = machine_with(4);
constexpr size_t kLargeDevice = size_t{80} << 30;

// 4 ranks on each of 2 nodes.
TrainConfig config_of_nodes() {
  TrainConfig config = tiny_config(4);
  config.hardware = Hardware::kGpu;
  config.dtype = ComputeType::kBfloat16;
  config.mesh.ici = {1, 1, 4, 1, 1, 1, 1};
  config.mesh.dcn = {2, 1, 1, 1, 1, 1, 1};
  config.per_device_batch_size = 4;
  config.max_target_length = 128;
  config.model.num_layers = 4;
  return config;
}

PlannedDevice device_with(size_t bytes) { return {.name = "a GPU", .memory_bytes = bytes}; }

size_t needed(const TrainConfig& config) {
  return largest_device_bytes(
      forecast_memory(config, device_with(kLargeDevice), {.is_wanted = false}));
}

SearchResult search(const TrainConfig& config, size_t bytes, const SearchOptions& options) {
  const auto found = search_settings(config, device_with(bytes), kSearchMachine, options,
                                     [](const SearchProgress&) { return true; });
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *found : SearchResult{.own = {.config = config}};
}

// Memory and tokens per second.
using Figures = std::pair<size_t, double>;
Figures figures_of(const PlannedSetting& setting) {
  return {setting.device_bytes, setting.tokens_per_second};
}
bool beats(const Figures& a, const Figures& b) {
  return a != b && a.first <= b.first && a.second >= b.second;
}

TEST(PlanSearch, EveryRowFitsIsNotBeatenAndCanBePasted) {
  const TrainConfig config = config_of_nodes();
  const size_t room = needed(config) - 1;  // the config itself does not fit
  const SearchResult result = search(config, room, {.plans_max = 300});
  EXPECT_EQ(result.planned, 300U);
  EXPECT_FALSE(result.own.memory.fits);
  EXPECT_EQ(result.own.config, config);
  ASSERT_GE(result.frontier.size(), 3U);
  for (const PlannedSetting& row : result.frontier) {
    const std::string line = format_settings(changed_keys(config, row.config));
    const TrainConfig pasted = with_words(config, line);
    EXPECT_EQ(pasted, row.config) << line;
    EXPECT_TRUE(validate(pasted).ok()) << line;
    EXPECT_TRUE(forecast_memory(pasted, device_with(room), {.is_wanted = false}).fits) << line;
    EXPECT_EQ(needed(pasted), row.device_bytes) << line;
    EXPECT_DOUBLE_EQ(
        tokens_of_step(pasted) / StepModel::record(pasted)->forecast(kSearchMachine).seconds,
        row.tokens_per_second);
    for (const PlannedSetting& other : result.frontier)
      EXPECT_FALSE(beats(figures_of(other), figures_of(row))) << line;
  }
}

TEST(PlanSearch, FindsTheFrontierOfAllSettings) {
  TrainConfig config = config_of_nodes();
  config.mesh = {.ici = {1, 1, 2, 1, 1, 1, 1}, .dcn = {1, 1, 1, 1, 1, 1, 1}};
  const SearchOptions options = {
      .space = {.keeps_global_batch = true, .kept = {"mu_dtype", "ici_tensor_parallelism"}},
      .plans_max = 10'000};
  const SearchResult result = search(config, kLargeDevice, options);
  EXPECT_TRUE(result.is_complete);
  EXPECT_EQ(result.fitting, result.planned);
  const SettingSpace space(config, options.space);
  std::set<Figures> all, frontier, found;
  for (size_t i = 0; i < space.points(); ++i) {
    const auto at = space.config_at(space.point_at(i));
    if (!at) continue;
    all.emplace(needed(*at),
                tokens_of_step(*at) / StepModel::record(*at)->forecast(kSearchMachine).seconds);
  }
  EXPECT_GT(all.size(), 50U);
  for (const Figures& figures : all) {
    if (std::ranges::none_of(all, [&](const Figures& it) { return beats(it, figures); }))
      frontier.insert(figures);
  }
  for (const PlannedSetting& row : result.frontier) found.insert(figures_of(row));
  EXPECT_EQ(found, frontier);
}

TEST(PlanSearch, DependsOnTheLimitAlone) {
  const TrainConfig config = config_of_nodes();
  const auto text = [&](int threads) {
    return to_json(search(config, kLargeDevice, {.plans_max = 80, .threads = threads})).dump();
  };
  EXPECT_EQ(text(1), text(4));
}

TEST(PlanSearch, KeepsKeysAndTheSequencesOfAStep) {
  const TrainConfig config = config_of_nodes();
  const SearchResult result =
      search(config, kLargeDevice,
             {.space = {.keeps_global_batch = true,
                        .kept = {"remat_policy", "dcn_data_parallelism", "zero_stage"}},
              .plans_max = 200});
  EXPECT_GT(result.planned, 20U);
  for (const PlannedSetting& row : result.frontier) {
    EXPECT_EQ(tokens_of_step(row.config), tokens_of_step(config));
    EXPECT_EQ(row.config.remat_policy, config.remat_policy);
    EXPECT_EQ(row.config.zero_stage, config.zero_stage);
    EXPECT_EQ(row.config.mesh.dcn, config.mesh.dcn);
  }
}

TEST(PlanSearch, EndsWhenProceedReturnsFalse) {
  size_t calls = 0;
  const auto found =
      search_settings(config_of_nodes(), device_with(kLargeDevice), kSearchMachine,
                      {.plans_max = 500}, [&](const SearchProgress&) { return ++calls < 10; });
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->is_interrupted);
  EXPECT_FALSE(found->is_complete);
  EXPECT_EQ(found->planned, 11U) << "ten, and the config's own settings";
  EXPECT_FALSE(found->frontier.empty());
}

TEST(PlanSearch, RefusesToKeepEverything) {
  const auto found = search_settings(config_of_nodes(), device_with(kLargeDevice), kSearchMachine,
                                     {.space = {.kept = searched_keys()}},
                                     [](const SearchProgress&) { return true; });
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("nothing is free to vary"));
}

TEST(PlanSearch, ALimitOfOnePlansTheOwnSettings) {
  const SearchResult result = search(config_of_nodes(), kLargeDevice, {.plans_max = 1});
  EXPECT_EQ(result.planned, 1U);
  EXPECT_FALSE(result.is_complete);
  EXPECT_EQ(result.frontier.size(), 1U);
}

TEST(PlanSearch, AlsoEndsWhereItOnlySkipsPoints) {
  std::vector<std::string> kept = searched_keys();
  std::erase(kept, "remat_policy");
  const SearchOptions options{.space = {.kept = kept}};
  const auto calls_of = [&](size_t limit) {
    size_t calls = 0;
    const auto found =
        search_settings(config_of_nodes(), device_with(kLargeDevice), kSearchMachine, options,
                        [&](const SearchProgress&) { return ++calls < limit; });
    EXPECT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found.ok() && found->is_interrupted, calls == limit);
    return std::pair(calls, found.ok() ? found->planned : 0);
  };
  const auto [calls, planned] = calls_of(1'000'000);
  EXPECT_GE(calls, planned) << "at least one call without a plan: the own settings had none";
  EXPECT_EQ(calls_of(calls).first, calls);
}

TEST(PlanSearch, KeepsOnlyTheDetailsOfItsRows) {
  const SearchResult result = search(config_of_nodes(), kLargeDevice, {.plans_max = 100});
  for (const PlannedSetting& row : result.frontier) {
    EXPECT_FALSE(row.memory.stages.empty());
    EXPECT_TRUE(row.time.is_object());
  }
  EXPECT_FALSE(result.own.memory.stages.empty());
  EXPECT_TRUE(result.own.time.is_object());
}

TEST(PlanSearch, ResultNamesTheChangesAndAllKeys) {
  const TrainConfig config = config_of_nodes();
  const nlohmann::json result = to_json(search(config, kLargeDevice, {.plans_max = 40}));
  EXPECT_EQ(result["planned"], 40);
  EXPECT_EQ(result["own"]["line"], "");
  EXPECT_EQ(result["own"]["keys"]["ici_fsdp_parallelism"], "4");
  EXPECT_EQ(result["own"]["keys"]["per_device_batch_size"], "4");
  for (const auto& row : result["rows"]) {
    for (const auto& [key, value] : row["changes"].items())
      EXPECT_THAT(row["line"].get<std::string>(), HasSubstr(key + "=" + value.get<std::string>()));
  }
}

}  // namespace
}  // namespace muster::trainer

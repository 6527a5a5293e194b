#include "jobspec/changed_job.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class ChangedJobs : public ConfigFiles {
 protected:
  static ChangeOptions elsewhere() { return {"/elsewhere", "/home/bob", shipped()}; }
  static v1::JobSpec job(std::vector<std::string> overrides, int32_t nodes = 1) {
    overrides.insert(overrides.begin(), {"model_name=llama2-tiny", "run_name=mine"});
    LaunchOptions launch = options();
    launch.nodes = nodes;
    launch.ranks_per_node = 2;
    const auto resolved = resolve(std::move(overrides), launch);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    return resolved->spec;
  }
  static absl::StatusOr<UpdatedJob> change(const v1::JobSpec& spec,
                                           const std::vector<std::string>& words) {
    return change_job(spec, words, elsewhere());
  }
};

TEST_F(ChangedJobs, OnlyTheKeyAndWhatFollowsFromItChange) {
  v1::JobSpec before = job({"steps=100", "learning_rate=1e-3", "dataset_type=synthetic"});
  // The shards into which the first command has tokenized the text.
  auto config = nlohmann::json::parse(before.train_config_json());
  config["dataset_path"] = "/cache/shards";
  before.set_train_config_json(config.dump());
  before.set_planned_step_us(77);
  const auto changed = change(before, {"steps=200", "learning_rate=5e-4"});
  ASSERT_TRUE(changed.ok()) << changed.status();
  const auto after = nlohmann::json::parse(changed->spec.train_config_json());
  std::vector<std::string> paths;
  for (const auto& step : nlohmann::json::diff(config, after))
    paths.push_back(step["path"].get<std::string>());
  EXPECT_THAT(paths, ElementsAre("/learning_rate", "/learning_rate_schedule_steps",
                                 "/learning_rate_warmup_steps", "/steps"));
  EXPECT_EQ(after["checkpoint_directory"], "/somewhere/mine/checkpoints");
  EXPECT_EQ(changed->spec.steps(), 200);
  EXPECT_EQ(changed->spec.planned_step_us(), 77) << "steps take as long as before";
  EXPECT_EQ(changed->spec.output_directory(), before.output_directory());
  EXPECT_THAT(changed->warnings, IsEmpty());
  // The next update begins with both changes.
  const auto again = change(changed->spec, {"checkpoint_period=7", "restarts_max=9"});
  ASSERT_TRUE(again.ok()) << again.status();
  const auto last = nlohmann::json::parse(again->spec.train_config_json());
  EXPECT_EQ(last["learning_rate"], 5e-4);
  EXPECT_EQ(last["steps"], 200);
  EXPECT_EQ(last["checkpoint_period"], 7);
  EXPECT_EQ(again->spec.restarts_max(), 9);
}

TEST_F(ChangedJobs, KeysThatBelongToTheCheckpointsAreRefusedByName) {
  const v1::JobSpec before = job({"steps=100"}, 2);
  const struct {
    std::vector<std::string> words;
    const char* expected;
  } kRefused[] = {
      {{"override_model_config=true", "base_emb_dim=128"},
       "base_emb_dim=128: a job cannot be updated with it: its checkpoints would not fit the "
       "model"},
      {{"opt_type=sgd"},
       "opt_type=sgd: a job cannot be updated with it: its checkpoints would not "
       "fit the optimizer's state"},
      {{"run_name=other"},
       "run_name=other: a job cannot be updated with it: its checkpoints are in "
       "the former folder"},
      {{"base_output_directory=/x"}, "base_output_directory=/x: a job cannot be updated with it"},
      {{"enable_checkpointing=False"},
       "enable_checkpointing=False: a job cannot be updated with it"},
      {{"spares=1"}, "spares=1: a job cannot be updated with it: an update keeps the nodes"},
      {{"learning_rte=1"}, "learning_rte"},
      {{"steps=many"}, "steps=many"},
  };
  for (const auto& refused : kRefused)
    EXPECT_THAT(error_of(change(before, refused.words)), HasSubstr(refused.expected));
}

TEST_F(ChangedJobs, AChangeOfTheBatchChangesEachSizeAndDropsThePlan) {
  v1::JobSpec before = job({"steps=10", "per_device_batch_size=6", "min_nodes=1",
                            "dcn_data_parallelism=2", "ici_fsdp_parallelism=2"},
                           2);
  ASSERT_EQ(before.smaller_size(), 1);
  before.set_planned_step_us(77);
  const auto changed = change(before, {"per_device_batch_size=8"});
  ASSERT_TRUE(changed.ok()) << changed.status();
  ASSERT_EQ(changed->spec.smaller_size(), 1);
  EXPECT_NE(changed->spec.smaller(0).train_config_json(), before.smaller(0).train_config_json());
  EXPECT_EQ(changed->spec.planned_step_us(), 0);
}

TEST_F(ChangedJobs, SettingsOfTheUsersOwnFilesAreKeptWithoutSecrets) {
  const std::string base = write("base.yml", "base_config: " + shipped() + "\nsteps: 40\n");
  const auto config =
      load({"hf_access_token=secret", "learning_rate=1e-3"}, {{"M_LOG_PERIOD", "3"}}, base);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto saved = nlohmann::json::parse(settings_to_json(*config, "/somewhere"));
  EXPECT_EQ(saved["settings"]["steps"], 40);
  EXPECT_EQ(saved["settings"]["learning_rate"], 1e-3);
  EXPECT_FALSE(saved["settings"].contains("hf_access_token")) << saved.dump();
  EXPECT_FALSE(saved["settings"].contains("base_emb_dim"));
  v1::JobSpec old;
  EXPECT_THAT(error_of(change(old, {"steps=1"})),
              StartsWith("the job has no record of its settings"));
}

}  // namespace
}  // namespace muster::jobspec

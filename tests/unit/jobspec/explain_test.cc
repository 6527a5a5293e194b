#include "jobspec/explain.h"

#include <gmock/gmock.h>

#include <map>

#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::HasSubstr;

class Explain : public ConfigFiles {
 protected:
  static std::map<std::string, ExplainedKey> rows(std::vector<std::string> overrides) {
    const auto config = load(std::move(overrides), {{"M_LOG_PERIOD", "7"}});
    EXPECT_TRUE(config.ok()) << config.status();
    const auto job = resolve_job(*config, options());
    EXPECT_TRUE(job.ok()) << job.status();
    std::map<std::string, ExplainedKey> rows;
    for (ExplainedKey& row : explain(*config, *job)) rows.emplace(row.key, std::move(row));
    return rows;
  }
};

TEST_F(Explain, EachValueHasItsOrigin) {
  const auto shown = rows({"model_name=gemma-2b", "steps=9"});
  EXPECT_EQ(shown.at("steps").origin, "command line");
  EXPECT_TRUE(shown.at("steps").is_changed);
  EXPECT_EQ(shown.at("log_period").origin, "environment M_LOG_PERIOD");
  EXPECT_THAT(shown.at("head_dim").origin, HasSubstr("gemma-2b.yml:"));
  EXPECT_THAT(shown.at("adam_b1").origin, HasSubstr("base.yml:"));
  EXPECT_FALSE(shown.at("adam_b1").is_changed);
  EXPECT_EQ(shown.at("head_dim").topic, "Model");
}

TEST_F(Explain, FilledInValuesAreDerived) {
  const auto shown = rows({"model_name=fuji-test", "learning_rate_schedule_steps=-1", "steps=5"});
  const ExplainedKey& schedule = shown.at("learning_rate_schedule_steps");
  EXPECT_EQ(schedule.value, 5);
  EXPECT_EQ(schedule.origin, "derived");
  EXPECT_EQ(schedule.stated, -1);
  EXPECT_EQ(schedule.stated_origin, "command line");
  EXPECT_EQ(shown.at("per_device_batch_size").value, 32);
  EXPECT_EQ(shown.at("norm_type").value, "rms");
  EXPECT_EQ(shown.at("norm_type").topic, "Derived");
  EXPECT_THAT(shown.at("trainable_position_size").origin, HasSubstr("base.yml:"));
  EXPECT_THAT(shown.at("max_num_checkpoints_to_keep").origin, HasSubstr("fuji.yml:"));
}

TEST_F(Explain, TheUsersChangesAreMarked) {
  auto shown = rows({"model_name=fuji-test", "steps=3000", "adam_b1=0.5", "adam_b2=0.95"});
  EXPECT_EQ(shown.at("steps").origin, "command line");
  EXPECT_FALSE(shown.at("steps").is_changed) << "it is the model's";
  EXPECT_TRUE(shown.at("adam_b1").is_changed);
  EXPECT_FALSE(shown.at("adam_b2").is_changed) << "it is base.yml's";
  EXPECT_FALSE(shown.at("base_emb_dim").is_changed) << "the model changes it";
  EXPECT_FALSE(shown.at("per_device_batch_size").is_changed) << "the mesh changes it";
  // Another name of the default is a change, and the row has it.
  const ExplainedKey hardware = rows({"hardware=tpu"}).at("hardware");
  EXPECT_TRUE(hardware.is_changed);
  EXPECT_EQ(hardware.value, "auto");
  EXPECT_EQ(hardware.stated, "tpu");
  EXPECT_EQ(hardware.stated_origin, "command line");
  EXPECT_FALSE(rows({"hardware=auto"}).at("hardware").is_changed);
  // The type that follows from a dataset_path is no change of the user's.
  const auto data = rows({"dataset_path=data"});
  EXPECT_TRUE(data.at("dataset_path").is_changed);
  EXPECT_EQ(data.at("dataset_type").value, "c4");
  EXPECT_FALSE(data.at("dataset_type").is_changed);
  // A default that the user restores differs from the model's value.
  EXPECT_TRUE(rows({"model_name=fuji-test", "learning_rate=3e-5"}).at("learning_rate").is_changed);
  EXPECT_FALSE(rows({}).at("learning_rate_schedule_steps").is_changed);
  EXPECT_FALSE(rows({}).at("run_name").is_changed);
  EXPECT_FALSE(rows({}).at("position_type").is_changed);
}

TEST_F(Explain, EditsInABaseOfOnesOwnAreMarked) {
  const auto config = load_config(
      {.path =
           write("own/base.yml",
                 "run_name: ''\nsteps: 7\nadam_b1: 0.9\nbase_emb_dim: 64\ninit_weights_seed: 5\n"),
       .flags = {},
       .overrides = {"model_name=fuji-test", "learning_rate=1e-3"},
       .environment = {},
       .shipped_base = shipped()});
  ASSERT_TRUE(config.ok()) << config.status();
  const auto job = resolve_job(*config, options());
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<std::string> changed;
  for (const ExplainedKey& row : explain(*config, *job)) {
    if (row.is_changed) changed.push_back(row.key);
  }
  EXPECT_THAT(changed,
              testing::UnorderedElementsAre("model_name", "learning_rate", "init_weights_seed"))
      << "the model has steps and base_emb_dim of its own";
}

TEST_F(Explain, BatchesAreThoseOfARank) {
  const auto config = load(
      {"per_device_batch_size=1", "ici_tensor_parallelism=2", "gradient_accumulation_steps=3"});
  LaunchOptions launch = options();
  launch.ranks_per_node = 4;
  const auto job = resolve_job(*config, launch);
  ASSERT_TRUE(job.ok()) << job.status();
  std::map<std::string, ExplainedKey> shown;
  for (ExplainedKey& row : explain(*config, *job)) shown.emplace(row.key, std::move(row));
  EXPECT_EQ(shown.at("per_device_batch_size").value, 1);
  EXPECT_EQ(shown.at("per_device_batch_size").origin, "command line");
  EXPECT_EQ(shown.at("eval_per_device_batch_size").value, 1);
  EXPECT_EQ(shown.at("global_batch_size").value, 12);
  EXPECT_EQ(shown.at("global_batch_size").origin, "derived");
}

TEST_F(Explain, UnusedRopeScalingIsShownAsWritten) {
  EXPECT_EQ(rows({}).at("rope_scaling_factor").value, 8);
  EXPECT_THAT(rows({}).at("rope_scaling_factor").origin, HasSubstr("base.yml:"));
}

TEST_F(Explain, KeysComeInTheOrderOfTheShippedFile) {
  const auto config = load({});
  const auto job = resolve_job(*config, options());
  ASSERT_TRUE(job.ok()) << job.status();
  const auto shown = explain(*config, *job);
  EXPECT_EQ(shown.front().key, "run_name");
  EXPECT_EQ(shown.back().topic, "Derived");
}

}  // namespace
}  // namespace muster::jobspec

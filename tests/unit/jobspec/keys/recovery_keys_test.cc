#include "jobspec/keys/recovery_keys.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/job/limits.h"
#include "tests/unit/jobspec/config_files.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecoveryKeys : public ConfigFiles {
 protected:
  static absl::StatusOr<ResolvedJob> on_nodes(int32_t nodes, int32_t ranks,
                                              std::vector<std::string> keys) {
    LaunchOptions launch = options();
    launch.nodes = nodes;
    launch.ranks_per_node = ranks;
    keys.insert(keys.end(), {"model_name=llama2-tiny", "steps=10"});
    return resolve(std::move(keys), launch);
  }

  // Returns "3: data=3 fsdp=2, 4 of 2": nodes, mesh, accumulation steps and sequences of each.
  static std::vector<std::string> sizes(const absl::StatusOr<ResolvedJob>& job) {
    std::vector<std::string> texts;
    if (!job.ok()) return {std::string(job.status().message())};
    for (const v1::Smaller& size : job->spec.smaller()) {
      const auto train =
          trainer::train_config_from_json(nlohmann::json::parse(size.train_config_json()));
      if (!train.ok()) return {std::string(train.status().message())};
      texts.push_back(absl::StrCat(size.nodes(), ": ", trainer::mesh_of(train->mesh).to_string(),
                                   ", ", train->gradient_accumulation_steps, " of ",
                                   train->per_device_batch_size));
    }
    return texts;
  }
};

TEST_F(RecoveryKeys, TheGlobalBatchStaysAndAMicroBatchDoesNotGrow) {
  EXPECT_THAT(
      sizes(on_nodes(4, 2, {"per_device_batch_size=6", "min_nodes=1"})),
      ElementsAre("3: data=3 fsdp=2, 2 of 4", "2: data=2 fsdp=2, 2 of 6", "1: fsdp=2, 4 of 6"));
  EXPECT_THAT(
      sizes(on_nodes(4, 1,
                     {"per_device_batch_size=1", "gradient_accumulation_steps=3", "min_nodes=2"})),
      ElementsAre("3: data=3, 4 of 1", "2: data=2, 6 of 1"));
}

TEST_F(RecoveryKeys, FsdpBetweenNodesShrinksWhereDataCannot) {
  const auto job = on_nodes(4, 1,
                            {"dcn_data_parallelism=2", "dcn_fsdp_parallelism=2",
                             "per_device_batch_size=3", "min_nodes=1"});
  EXPECT_THAT(sizes(job), ElementsAre("2: fsdp=2, 2 of 3", "1: 1 rank, 4 of 3"));
  EXPECT_THAT(job->warnings, ::testing::Contains(HasSubstr("each rank holds more")));
}

TEST_F(RecoveryKeys, SettingsIndependentOfTheSizeStay) {
  const auto job =
      on_nodes(2, 2,
               {"per_device_batch_size=2", "min_nodes=1", "eval_interval=5", "eval_steps=3",
                "eval_holdout_fraction=0.1", "dataset_type=shards", "dataset_path=/data"});
  ASSERT_EQ(job->spec.smaller_size(), 1) << job.status();
  auto fewer = trainer::train_config_from_json(
      nlohmann::json::parse(job->spec.smaller(0).train_config_json()));
  ASSERT_TRUE(fewer.ok());
  EXPECT_EQ(fewer->eval.steps, 6) << "as many sequences by half as many ranks";
  fewer->eval.steps = job->train.eval.steps;
  fewer->mesh = job->train.mesh;
  fewer->gradient_accumulation_steps = job->train.gradient_accumulation_steps;
  EXPECT_EQ(trainer::to_json(*fewer), trainer::to_json(job->train));
}

TEST_F(RecoveryKeys, ImpossibleSizesAreOmitted) {
  EXPECT_THAT(sizes(on_nodes(4, 1, {"per_device_batch_size=2", "min_nodes=1"})),
              ElementsAre("2: data=2, 2 of 2", "1: 1 rank, 4 of 2"))
      << "8 sequences by 3";
  EXPECT_THAT(sizes(on_nodes(8, 1,
                             {"per_device_batch_size=2", "dcn_pipeline_parallelism=2",
                              "num_pipeline_microbatches=2", "min_nodes=1"})),
              ElementsAre("4: data=2 pipeline=2, 2 of 4", "2: pipeline=2, 4 of 4"));
}

TEST_F(RecoveryKeys, TheNumberOfSizesIsBounded) {
  const auto job = on_nodes(64, 1,
                            {"per_device_batch_size=1", "gradient_accumulation_steps=1",
                             "global_batch_size=0", "min_nodes=1"});
  EXPECT_THAT(sizes(job),
              ElementsAre("32: data=32, 2 of 1", "16: data=16, 4 of 1", "8: data=8, 8 of 1",
                          "4: data=4, 16 of 1", "2: data=2, 32 of 1", "1: 1 rank, 64 of 1"));
  const auto many = on_nodes(120, 1, {"per_device_batch_size=42", "min_nodes=1"});
  EXPECT_EQ(many->spec.smaller_size(), kSmallerSizesMax);
}

TEST_F(RecoveryKeys, ErrorsNamePossibleValues) {
  const auto error = [](int32_t nodes, std::vector<std::string> keys) {
    keys.push_back("per_device_batch_size=2");
    return error_of(on_nodes(nodes, 1, std::move(keys)));
  };
  EXPECT_EQ(
      error(4, {"min_nodes=3"}),
      "min_nodes=3: the job cannot continue with 3 to 3 of its 4 nodes; on 3, the 8 sequences of a "
      "step cannot be shared equally by 3 ranks; 2 nodes would do: min_nodes=2");
  EXPECT_THAT(error(2, {"min_nodes=1", "dcn_pipeline_parallelism=2"}),
              AllOf(HasSubstr("min_nodes=1"), HasSubstr("only data and fsdp can shrink"),
                    HasSubstr("no smaller number is possible; leave min_nodes unset")));
  EXPECT_EQ(error(2, {"min_nodes=3"}),
            "min_nodes=3: the job has 2 nodes, so it must be 1 to 2, or 0 for all");
  EXPECT_THAT(error(2, {"min_nodes=-1"}), HasSubstr("min_nodes=-1"));
  EXPECT_THAT(error(2, {"spares=-1"}), HasSubstr("spares=-1"));
}

TEST_F(RecoveryKeys, AnOptionReplacesItsKey) {
  auto config = load({"spares=1"});
  LaunchOptions launch = options();
  EXPECT_EQ(resolve_job(*config, launch)->spec.spares(), 1);
  launch.spares = 2;
  EXPECT_EQ(error_of(resolve_job(*config, launch)),
            "--spares 2 and spares=1 disagree; give one of the two");
  config = load({});
  EXPECT_EQ(resolve_job(*config, launch)->spec.spares(), 2);
  launch.nodes = 2;
  launch.min_nodes = 1;
  const auto job = resolve_job(*config, launch);
  EXPECT_EQ(job->spec.min_nodes(), 1);
  EXPECT_EQ(job->spec.smaller_size(), 1);
  launch.min_nodes = 2;
  EXPECT_THAT(resolve_job(*config, launch)->spec.smaller(), IsEmpty());
}

}  // namespace
}  // namespace muster::jobspec

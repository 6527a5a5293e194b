// A run resumes from a checkpoint of the same data, and of other data only if configured to.
#include "trainer_core/input/data_order.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <functional>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/startup/preflight.h"
#include "trainer_core/text/tokenize.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class DataOrder : public testing::Test {
 protected:
  void SetUp() override {
    make_text_dataset(folder_.path());
    tokenize("other", /*add_eos=*/false);
    fs::copy(folder_.file("data"), folder_.file("moved"));
    made_ = config();
    made_.dataset_path = folder_.file("data") + ",0.7;" + folder_.file("other") + ",0.3";
    ASSERT_THAT(run(made_).codes, Each(ExitCode::kOk));
  }

  TrainConfig config(int ranks = 1) const {
    TrainConfig config = tiny_config(ranks);
    config.model.vocab_size = kTextVocab;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("data");
    config.eval.holdout_fraction = 0.01;
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file("checkpoints");
    config.steps = 3;
    return config;
  }

  void tokenize(const std::string& name, bool add_eos) const {
    TokenizeOptions options;
    options.inputs = {folder_.file("text.txt")};
    options.tokenizer_path = folder_.file("t.model");
    options.output_directory = folder_.file(name);
    options.encode.add_eos = add_eos;
    const auto report = tokenize_files(options);
    ASSERT_TRUE(report.ok()) << report.status();
  }

  // Runs made_ with a change for one more step.
  TrainConfig changed(const std::function<void(TrainConfig&)>& change) const {
    TrainConfig config = made_;
    config.steps = 4;
    change(config);
    return config;
  }

  std::string shards(const std::string& first, const std::string& weights_of_second) const {
    return folder_.file(first) + ",0.7;" + folder_.file("other") + "," + weights_of_second;
  }

  TempFolder folder_;
  TrainConfig made_;
};

struct Change {
  std::function<void(TrainConfig&)> change;
  std::string expected;
};

TEST_F(DataOrder, EachChangeIsNamedByThePreflightAndAtTheStart) {
  const std::vector<Change> changes = {
      {[](TrainConfig& c) { c.data_shuffle_seed = 5; }, "data_shuffle_seed was 0 and is 5"},
      {[](TrainConfig& c) { c.max_target_length = 8; }, "max_target_length was 16 and is 8"},
      {[](TrainConfig& c) { c.packing = false; }, "packing was true and is false"},
      {[](TrainConfig& c) { c.enable_data_shuffling = false; },
       "enable_data_shuffling was true and is false"},
      {[](TrainConfig& c) { c.reuse_example_batch = true; },
       "reuse_example_batch was false and is true"},
      {[](TrainConfig& c) { c.eval.holdout_fraction = 0.02; },
       "eval_holdout_fraction was 0.01 and is 0.02"},
      {[&](TrainConfig& c) { c.dataset_path = shards("data", "0.1"); },
       "the share of " + folder_.file("data") + " in dataset_path was 0.7 and is 0.875"},
      {[&](TrainConfig& c) { c.dataset_path = shards("other", "0.3"); },
       "data set 1 of dataset_path was " + folder_.file("data") + " ("},
      {[&](TrainConfig& c) { c.dataset_path = folder_.file("data"); },
       "dataset_path had 2 data sets and has 1"},
      {[](TrainConfig& c) {
         c.dataset_type = DatasetType::kSynthetic;
         c.eval.holdout_fraction = 0;
       },
       "dataset_type was shards and is synthetic"},
  };
  for (const Change& test : changes) {
    const TrainConfig with = changed(test.change);
    const auto explains = AllOf(HasSubstr(test.expected), HasSubstr("checkpoints/3 was made with"),
                                HasSubstr("resume_with_other_data=True"), HasSubstr("sample 12"));
    const absl::Status status = preflight(with, std::nullopt);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.expected;
    EXPECT_THAT(std::string(status.message()), explains);
    const RunResult result = run(with);
    EXPECT_THAT(result.codes, Each(ExitCode::kBadInput)) << test.expected;
    EXPECT_THAT(result.err, explains);
  }
}

TEST_F(DataOrder, IrrelevantChangesAreNoDifference) {
  for (const auto& change : std::vector<std::function<void(TrainConfig&)>>{
           [&](TrainConfig& c) { c.dataset_path = shards("moved", "0.3"); },
           [&](TrainConfig& c) {
             c.dataset_path = folder_.file("data") + ",7;" + folder_.file("other") + ",3";
           },
           [](TrainConfig& c) { c.per_device_batch_size = 2; },
           [](TrainConfig& c) { c.log_period = 1; }}) {
    const absl::Status status = preflight(changed(change), std::nullopt);
    EXPECT_TRUE(status.ok()) << status;
  }
}

// All ranks exit for the same reason, whichever of them read the disk.
TEST_F(DataOrder, AllRanksRefuseTogether) {
  for (const bool shared : {true, false}) {
    TrainConfig two = shared ? along_fsdp(config(2)) : config(2);
    two.dataset_path = made_.dataset_path;
    two.steps = 4;
    two.data_shuffle_seed = 1;
    const RunResult result = run(two);
    EXPECT_THAT(result.codes, Each(ExitCode::kBadInput)) << result.err;
    EXPECT_THAT(result.err, HasSubstr("data_shuffle_seed was 0 and is 1"));
  }
}

TEST_F(DataOrder, ResumesWithOtherDataIfConfigured) {
  TrainConfig with = changed([](TrainConfig& c) {
    c.data_shuffle_seed = 5;
    c.resume_with_other_data = true;
  });
  EXPECT_TRUE(preflight(with, std::nullopt).ok());
  const RunResult first = run(with);
  ASSERT_THAT(first.codes, Each(ExitCode::kOk)) << first.err;
  EXPECT_THAT(first.out, HasSubstr("was made with other data: data_shuffle_seed was 0 and is 5; "
                                   "training resumes at sample 12 of the present data"));
  ASSERT_EQ(first.records[0].size(), 1U);
  // From its own checkpoint it resumes without a note.
  with.resume_with_other_data = false;
  with.steps = 5;
  const RunResult second = run(with);
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_THAT(second.out, Not(HasSubstr("other data")));
}

TEST_F(DataOrder, ACheckpointWithoutADataOrderResumesWithANote) {
  const std::string folder = folder_.file("checkpoints/3");
  auto manifest = read_manifest(folder);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->info.data = nullptr;
  write_file(folder + "/" + kManifestFile, manifest_text(*manifest));
  const RunResult result = run(changed([](TrainConfig& c) { c.data_shuffle_seed = 5; }));
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.out, HasSubstr("checkpoint " + folder + " does not record its data"));
}

TEST(DataOrderOfAManifest, MayBeAnyJson) {
  const nlohmann::json now = {{"dataset_type", "shards"}, {"dataset_path", {{{"folder", "/a"}}}}};
  for (const char* then :
       {"1", "[]", "{}", R"({"dataset_type": "shards", "dataset_path": 3})",
        R"({"dataset_type": "shards", "dataset_path": [3]})", R"({"dataset_type": ["shards"]})"}) {
    const auto parsed = nlohmann::json::parse(then);
    EXPECT_EQ(data_order_difference(parsed, now).empty(),
              std::string(then) == R"({"dataset_type": "shards", "dataset_path": [3]})")
        << then;
  }
}

}  // namespace
}  // namespace muster::trainer

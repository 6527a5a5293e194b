// Data becomes unreadable in the middle of a run: all ranks leave together, the completed steps are
// saved, and the run resumes from there when the data is readable again.
#include "trainer_core/recovery/data_fault.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/data/token_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

// Sequences of 16 tokens in order, 4 per step. The second shard begins in the middle of sequence
// 22, the third of step 5: of two ranks along data, rank 1 reads it and rank 0 does not.
constexpr int64_t kStep = 5;

class DataFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    // More tokens than a block: the ends of documents are in the next block, which is read at the
    // start.
    Document first(353), second(kShardBlockBytes / 2);
    for (Document* document : {&first, &second}) {
      std::iota(document->begin(), document->end(), 1);
      for (int32_t& token : *document) token %= kTextVocab;
    }
    for (const char* name : {"good", "bad"}) {
      fs::create_directory(folder_.file(name));
      make_token_folder(folder_.file(name), {{first}, {second}}, kTextVocab);
    }
    const std::string shard = folder_.file("bad/shard-00001.mtok");
    std::string bytes = read_file(shard);
    bytes[kShardHeaderBytes] = static_cast<char>(bytes[kShardHeaderBytes] ^ 1);
    write_file(shard, bytes);
  }

  TrainConfig config(const std::string& data, const std::string& checkpoints, int ranks) const {
    TrainConfig config = tiny_config(ranks);
    config.model.vocab_size = kTextVocab;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file(data);
    config.enable_data_shuffling = false;
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = 3;
    config.steps = 8;
    return config;
  }

  // Resumes where it stopped, as if nothing had happened.
  void expect_resumes(const TrainConfig& broken) {
    TrainConfig again = broken, whole = broken;
    again.dataset_path = whole.dataset_path = folder_.file("good");
    // An intact copy is restored: by the checksums in its headers it is the same data.
    const RunResult rest = run(again);
    ASSERT_THAT(rest.codes, Each(ExitCode::kOk)) << rest.err;
    EXPECT_EQ(rest.records[0].front().step, kStep);
    whole.checkpoint_directory = folder_.file("whole");
    fs::remove_all(whole.checkpoint_directory);
    ASSERT_THAT(run(whole).codes, Each(ExitCode::kOk));
    EXPECT_EQ(checkpoint_bytes(broken.checkpoint_directory + "/8"),
              checkpoint_bytes(whole.checkpoint_directory + "/8"));
  }

  TempFolder folder_;
};

TEST_F(DataFaultTest, OneRankSavesItsCompletedSteps) {
  const TrainConfig with = config("bad", "one", 1);
  const RunResult result = run(with);
  EXPECT_THAT(result.codes, ElementsAre(ExitCode::kFailure));
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 0: data of step 5: token shard "),
                                HasSubstr("bad/shard-00001.mtok is damaged: the checksum of its "
                                          "bytes 64 to 65535 differs")));
  EXPECT_THAT(result.out, HasSubstr("saved checkpoint " + folder_.file("one/5")));
  expect_resumes(with);
}

// Rank 1 has the error, and rank 0 the state to save.
TEST_F(DataFaultTest, ARankWithoutDataDoesNotPreventTheSave) {
  for (const bool background : {true, false}) {
    TrainConfig with = config("bad", background ? "two" : "waiting", 2);
    with.async_checkpointing = background;
    const RunResult result = run(with);
    EXPECT_THAT(result.codes, ElementsAre(ExitCode::kPeerLost, ExitCode::kFailure)) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("rank 1: data of step 5: token shard "),
                      HasSubstr("rank 0: data of step 5: rank 1 cannot read it; see its log")));
    EXPECT_THAT(result.out, HasSubstr("saved checkpoint " + with.checkpoint_directory + "/5"));
    expect_resumes(with);
  }
}

// Ranks that share the model save it together; each has a part of the passes that the others wait
// for.
TEST_F(DataFaultTest, RanksThatShareTheModelSaveItTogether) {
  TrainConfig pipeline = config("bad", "pipeline", 2);
  pipeline.mesh = {};
  pipeline.mesh.ici[static_cast<size_t>(MeshAxis::kPipeline)] = 2;
  pipeline.per_device_batch_size = 4;
  pipeline.pipeline_microbatches = 2;
  TrainConfig accumulating = along_fsdp(config("bad", "accumulating", 2));
  accumulating.gradient_accumulation_steps = 2;
  accumulating.per_device_batch_size = 1;
  for (const TrainConfig& with :
       {along_fsdp(config("bad", "fsdp", 2)), along_tensor(config("bad", "tensor", 2)), pipeline,
        accumulating}) {
    const RunResult result = run(with);
    // Ranks along tensor and pipeline read the same data.
    EXPECT_THAT(result.codes, Each(testing::AnyOf(ExitCode::kPeerLost, ExitCode::kFailure)))
        << with.checkpoint_directory << ": " << result.err;
    EXPECT_EQ(result.codes[1], ExitCode::kFailure);
    EXPECT_THAT(result.out, HasSubstr("saved checkpoint " + with.checkpoint_directory + "/5"));
    EXPECT_THAT(result.err, Not(HasSubstr("not saved")));
    expect_resumes(with);
  }
}

TEST_F(DataFaultTest, UnreadableEvaluationDataLosesNoStep) {
  for (const int ranks : {1, 2}) {
    TrainConfig with = along_fsdp(config("good", "evaluating" + std::to_string(ranks), ranks));
    with.eval.interval = 4;
    with.eval.dataset_path = folder_.file("bad");
    with.eval.per_device_batch_size = 1;
    with.eval.steps = 30;
    const RunResult result = run(with);
    EXPECT_THAT(result.codes, Each(testing::AnyOf(ExitCode::kPeerLost, ExitCode::kFailure)));
    EXPECT_THAT(result.err, HasSubstr("evaluation after step 3: token shard "));
    EXPECT_THAT(result.out, HasSubstr("saved checkpoint " + with.checkpoint_directory + "/4"));
  }
}

TEST_F(DataFaultTest, WithoutCheckpointsItIsOnlyAnError) {
  TrainConfig with = config("bad", "none", 2);
  with.enable_checkpointing = false;
  const RunResult result = run(with);
  EXPECT_THAT(result.codes, ElementsAre(ExitCode::kPeerLost, ExitCode::kFailure));
  EXPECT_FALSE(fs::exists(folder_.file("none")));
}

}  // namespace
}  // namespace muster::trainer

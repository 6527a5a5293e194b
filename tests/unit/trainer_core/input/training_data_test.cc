// A run's use of its data: the same tokens on any mesh, evaluation, epochs.
#include "trainer_core/input/training_data.h"

#include <gmock/gmock.h>

#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/startup/agreement.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

class RunOnData : public testing::Test {
 protected:
  void SetUp() override { make_text_dataset(folder_.path()); }

  TrainConfig config(int ranks = 1) const {
    TrainConfig config = tiny_config(ranks);
    config.model.vocab_size = kTextVocab;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("data");
    config.steps = 6;
    return config;
  }
  // Evaluates after steps 1, 3 and 5: 13 sequences per rank in training's micro-batches, the last
  // of which is not full.
  TrainConfig evaluating(int ranks = 1) const {
    TrainConfig with = config(ranks);
    with.eval.interval = 2;
    with.eval.holdout_fraction = 0.01;
    with.eval.per_device_batch_size = 13;
    return with;
  }

  TempFolder folder_;
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
}

TEST_F(RunOnData, AnyMeshHasTheSameLossesPackedOrNot) {
  for (const bool packing : {true, false}) {
    TrainConfig one = config(1), four = config(4);
    one.packing = four.packing = packing;
    const RunResult alone = run(one);
    ASSERT_THAT(alone.codes, Each(ExitCode::kOk)) << alone.err;
    for (const RunResult& shared : {run(four), run(along_fsdp(four)), run(along_tensor(four))}) {
      ASSERT_THAT(shared.codes, Each(ExitCode::kOk)) << shared.err;
      expect_near(alone.losses(), shared.losses());
    }
    for (const StepRecord& record : alone.records[0]) {
      // 4 sequences of 16 tokens; documents end in some of them.
      EXPECT_LE(record.total_weights, 64);
      EXPECT_GT(record.total_weights, 40);
      EXPECT_GE(record.data_wait_seconds, 0);
      EXPECT_LE(record.data_wait_seconds, record.seconds);
    }
    EXPECT_THAT(alone.out, HasSubstr("data wait: "));
  }
}

TEST_F(RunOnData, AnEvaluationIsTheSameOnAnyMeshAndChangesNothing) {
  TrainConfig without = evaluating();
  without.eval.interval = -1;
  const RunResult plain = run(without), one = run(evaluating(1));
  ASSERT_THAT(one.codes, Each(ExitCode::kOk)) << one.err;
  EXPECT_EQ(plain.losses(), one.losses());
  ASSERT_EQ(one.evaluations[0].size(), 3U);
  for (const RunResult& two :
       {run(evaluating(2)), run(along_fsdp(evaluating(2))), run(along_tensor(evaluating(2)))}) {
    ASSERT_THAT(two.codes, Each(ExitCode::kOk)) << two.err;
    expect_near(plain.losses(), two.losses());
    for (size_t i = 0; i < 3; ++i) {
      const EvalRecord &a = one.evaluations[0][i], &b = two.evaluations[0][i];
      EXPECT_EQ(a.step, static_cast<int64_t>(2 * i) + 1);
      EXPECT_NEAR(a.loss, b.loss, 1e-5);
      EXPECT_EQ(a.total_weights, b.total_weights);
      EXPECT_EQ(two.evaluations[1][i].loss, b.loss);
    }
  }
  EXPECT_GT(one.evaluations[0][0].loss, one.evaluations[0][2].loss) << "nothing is learned";
  EXPECT_THAT(one.out, HasSubstr("\neval metrics after step: 3, loss="));
  EXPECT_THAT(plain.out, Not(HasSubstr("eval")));
}

// For untrained parameters and all sequences in one batch, the evaluation's sum is that of the
// single sequences.
TEST_F(RunOnData, AnEvaluationCountsEachTargetOnce) {
  TrainConfig with = evaluating();
  with.optimizer.learning_rate = 0;
  const auto data = open_training_data(with);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->eval.size(), 1U);
  const auto length = static_cast<size_t>(with.max_target_length);
  std::vector<int32_t> tokens(length), targets(length), starts(length);
  std::vector<float> weights(length);
  double total = 0;
  for (uint64_t i = 0; i < data->eval_sequences(); ++i) {
    ASSERT_TRUE(data->eval[0]->read(i, {tokens, targets, starts, weights}).ok());
    for (const float weight : weights) total += weight;
  }
  const RunResult result = run(with);
  ASSERT_EQ(result.evaluations[0].size(), 3U) << result.err;
  EXPECT_EQ(result.evaluations[0][0].total_weights, total);
  EXPECT_EQ(result.evaluations[0][0].loss, result.evaluations[0][2].loss);
  with.eval.steps = 2;
  EXPECT_LE(run(with).evaluations[0][0].total_weights, 2 * 13 * 16);
}

TEST_F(RunOnData, AnotherFolderIsEvaluatedLikeAHoldout) {
  TrainConfig with = config();
  with.eval.interval = 6;
  with.eval.per_device_batch_size = 100;
  with.eval.steps = 1;
  with.eval.dataset_path = folder_.file("data");
  const RunResult result = run(with);
  ASSERT_EQ(result.evaluations[0].size(), 1U) << result.err;
  EXPECT_NEAR(result.evaluations[0][0].loss, result.losses().back(), 0.5);
}

TEST_F(RunOnData, ReachingTheTargetLossEndsTheTrainingWithACheckpoint) {
  TrainConfig with = evaluating(2);
  with.steps = 20;
  with.eval.start_step = 3;
  with.eval.target_loss = 100;
  with.enable_checkpointing = true;
  with.checkpoint_directory = folder_.file("ckpt");
  const RunResult result = run(with);
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_EQ(result.losses().size(), 4U) << "no evaluation before 3 steps are completed";
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("eval metrics after step: 3, "),
                    HasSubstr("Early stop and exit loop after reaching target_eval_loss=100")));
  EXPECT_THAT(result.checkpoint_steps, testing::Contains(4));
}

TEST_F(RunOnData, EpochsEndTheTraining) {
  TrainConfig with = config(2);
  with.packing = false;
  with.num_epoch = 1;
  with.per_device_batch_size = 150;  // 6 batches of 300 of the 2000 documents
  with.steps = 100;
  with.log_period = 100;
  with.enable_checkpointing = true;
  with.checkpoint_directory = folder_.file("ckpt");
  const RunResult result = run(with);
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_EQ(result.losses().size(), 6U);
  EXPECT_THAT(result.out, AllOf(HasSubstr("completed step: 5,"),
                                HasSubstr("the data ends: num_epoch=1 gives 6 of 100 steps")));
  EXPECT_THAT(result.checkpoint_steps, testing::Contains(6));
  EXPECT_THAT(run(with).out, HasSubstr("nothing to do"));
}

TEST_F(RunOnData, EpochsOfLessThanABatchAreRejected) {
  TrainConfig with = config(1);
  with.packing = false;
  with.num_epoch = 2;
  with.per_device_batch_size = 4001;  // more than the 2000 documents
  const RunResult result = run(with);
  EXPECT_THAT(result.codes, Each(ExitCode::kBadInput));
  EXPECT_THAT(result.err, HasSubstr("num_epoch=2 of 2000 sequences is less than one batch, which "
                                    "has 4001; lower per_device_batch_size"));
}

TEST_F(RunOnData, TheExampleBatchIsReused) {
  TrainConfig with = config();
  with.reuse_example_batch = true;
  with.optimizer.learning_rate = 0;
  std::vector<double> losses = run(with).losses();
  ASSERT_EQ(losses.size(), 6U);
  EXPECT_THAT(losses, Each(losses[0]));
  with.reuse_example_batch = false;
  losses = run(with).losses();
  EXPECT_NE(losses[0], losses[1]);
}

TEST_F(RunOnData, ARankWithOtherDataIsNamed) {
  const TrainConfig with = config(2);
  std::filesystem::create_directory(folder_.file("other"));
  for (const char* file : {"/index.json", "/shard-00000.mtok"})
    std::filesystem::copy_file(with.dataset_path + file, folder_.file("other") + file);
  TrainConfig moved = with;
  moved.dataset_path = folder_.file("other");
  const auto here = open_training_data(with), there = open_training_data(moved);
  ASSERT_TRUE(here.ok() && there.ok());
  EXPECT_EQ(here->fingerprint, there->fingerprint) << "where it lies does not matter";

  LocalWorld world(2, std::chrono::milliseconds(60'000));
  std::vector<std::string> messages(2);
  std::vector<std::thread> ranks;
  std::vector<std::unique_ptr<RankModel>> rank_models;
  for (int rank = 0; rank < 2; ++rank)  // before any thread reads the vector
    rank_models.push_back(std::make_unique<RankModel>(with, 1));
  for (int rank = 0; rank < 2; ++rank) {
    RankModel& rank_model = *rank_models[static_cast<size_t>(rank)];
    init_params(rank_model.table(), 0, rank_model.model().params().data());
    ranks.emplace_back([&, rank, r = static_cast<size_t>(rank)] {
      ProcessGroups groups(world.join(rank), mesh_of(with.mesh), nullptr);
      messages[r] =
          std::string(check_agreement(groups, here->fingerprint + r, rank_model).message());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(messages, Each(HasSubstr("rank 1 reads other data than rank 0")));
}

TEST_F(RunOnData, ImpossibleEvaluationsAreNamed) {
  const auto problem = [](const TrainConfig& with) {
    return std::string(open_training_data(with).status().message());
  };
  TrainConfig with = evaluating(2);
  with.eval.steps = 1000;
  EXPECT_THAT(problem(with),
              AllOf(HasSubstr("eval_steps is 1000 batches of 26 sequences, but there are "),
                    HasSubstr("use at most ")));
  with = evaluating();
  with.eval.holdout_fraction = 1e-9;
  with.max_target_length = 4096;
  EXPECT_THAT(problem(with), HasSubstr(" that eval_holdout_fraction=1e-09 holds out has "));
  with.eval.holdout_fraction = 0.999;
  EXPECT_THAT(problem(with), HasSubstr("with eval_holdout_fraction=0.999 has "));
  with.eval.holdout_fraction = 0;
  with.eval.dataset_path = folder_.file("none");
  EXPECT_THAT(problem(with), HasSubstr("eval_dataset_path: no data set"));
}

}  // namespace
}  // namespace muster::trainer

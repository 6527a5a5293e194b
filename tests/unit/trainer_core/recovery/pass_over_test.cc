// Steps that are not finite: the culprit that is named, and the job's reaction.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/checkpoint/manifest.h"
#include "trainer_core/input/step_data.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/recovery/step_guard.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

// One token of the vocabulary is NaN in the embedding, so that a step is not finite if its batch
// contains the token. Ranks are along data, or share parameters: then they search for the culprit
// together.
class PassOver : public testing::TestWithParam<MeshAxis> {
 protected:
  void SetUp() override { make_text_dataset(folder_.path()); }

  static TrainConfig on_axis(const TrainConfig& config) {
    return GetParam() == MeshAxis::kFsdp ? along_fsdp(config) : config;
  }
  static TrainConfig of_one_rank(TrainConfig config) {
    config.mesh = {};
    return config;
  }

  TrainConfig config(const std::string& checkpoints, NotFinitePolicy policy, int ranks = 2) const {
    TrainConfig config = tiny_config(ranks);
    config.model.vocab_size = kTextVocab;
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file("data");
    config.steps = 12;
    config.optimizer.learning_rate = 1e-9;  // the NaN stays in the one row
    config.max_target_length = 8;
    config.per_device_batch_size = 2 / ranks;
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = 1;
    config.not_finite_policy = policy;
    return on_axis(config);
  }

  // Finds a token that exactly one of the first `steps` batches contains, neither the first nor the
  // last, and that batch.
  struct Rare {
    int32_t token;
    int64_t batch;
  };
  Rare rare_token(int64_t steps) const {
    const TrainConfig plain = config("", NotFinitePolicy::kAbort, 1);
    auto opened = open_training_data(plain);
    EXPECT_TRUE(opened.ok()) << opened.status();
    const auto data = StepData::training(plain, 0, *opened);
    std::map<int32_t, std::set<int64_t>> batches_of;
    for (int64_t i = 0; i < steps; ++i) {
      const auto batch = data->load(static_cast<uint64_t>(i) * data->samples_per_step(), 0);
      for (const int32_t token : batch->tokens) batches_of[token].insert(i);
    }
    for (const auto& [token, batches] : batches_of) {
      if (batches.size() == 1 && *batches.begin() > 3 && *batches.begin() < 8)
        return {token, *batches.begin()};
    }
    ADD_FAILURE() << "no token is rare";
    return {};
  }

  // Writes a checkpoint of step 0 in which that token is NaN, if any.
  void plant(const TrainConfig& config, std::optional<int32_t> token, uint64_t samples = 0) const {
    RankModel rank_model(of_one_rank(config), 1);
    init_params(rank_model.table(), 0, rank_model.model().params().data());
    ASSERT_EQ(rank_model.table().front().name, "model.embed_tokens.weight");
    if (token.has_value()) {
      const auto row = static_cast<size_t>(*token) * static_cast<size_t>(config.model.emb_dim);
      rank_model.model().params()[row] = std::nanf("");
    }
    const CheckpointStore store(config.checkpoint_directory, -1);
    ASSERT_TRUE(store.prepare().ok());
    std::vector<std::string> notes;
    const CheckpointInfo info{
        .folder = "", .step = 0, .samples = samples, .config = to_json(config)};
    const auto status =
        store.save(info, rank_model.plan().checkpoint_layout(), rank_model.state(), notes);
    ASSERT_TRUE(status.ok()) << status;
  }

  uint64_t samples_of(const std::string& checkpoints, int64_t step) const {
    const auto info =
        verify_checkpoint(folder_.file(checkpoints) + "/" + std::to_string(step), true);
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() ? info->samples : 0;
  }
  std::string bytes_of(const std::string& checkpoints, int64_t step) const {
    const std::string folder = folder_.file(checkpoints) + "/" + std::to_string(step);
    return checkpoint_bytes(folder);
  }

  TempFolder folder_;
};

TEST_P(PassOver, AbortNamesTheStepBatchRankAndTensor) {
  const Rare rare = rare_token(13);
  const TrainConfig job = config("ckpt", NotFinitePolicy::kAbort);
  plant(job, rare.token);
  const RunResult result = run(job);
  EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite));
  const std::string batch = std::to_string(rare.batch);
  const std::string samples = "global samples " + std::to_string(2 * rare.batch) + " to " +
                              std::to_string(2 * rare.batch + 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("Aborting training due to NaN loss. Step " + batch),
                                HasSubstr("the loss of "), HasSubstr(samples),
                                HasSubstr("no checkpoint is made of it"),
                                HasSubstr(": step " + batch +
                                          ": the first tensor that is not finite "
                                          "is parameter model.embed_tokens.weight, in the batch "
                                          "of global samples ")));
  EXPECT_FALSE(fs::exists(folder_.file("ckpt/" + std::to_string(rare.batch + 1))));
}

TEST_P(PassOver, SkipContinuesWithTheNextBatch) {
  const Rare rare = rare_token(13);
  const TrainConfig job = config("ckpt", NotFinitePolicy::kSkip);
  plant(job, rare.token);
  const RunResult result = run(job);
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("not finite: Step " + std::to_string(rare.batch)),
                                HasSubstr("its batch is passed over: skipped, number 1 in a row"),
                                Not(HasSubstr("Aborting"))));
  ASSERT_EQ(result.records[0].size(), 12U);
  EXPECT_EQ(result.records[1].back().skipped_batches, 1);
  EXPECT_EQ(samples_of("ckpt", rare.batch), static_cast<uint64_t>(2 * rare.batch));
  EXPECT_EQ(samples_of("ckpt", rare.batch + 1), static_cast<uint64_t>(2 * (rare.batch + 2)));
  EXPECT_EQ(samples_of("ckpt", 12), 26U);

  // Restarts from before the batch and from after it give the same result.
  for (const int64_t step : {rare.batch, rare.batch + 1}) {
    const std::string again = "from" + std::to_string(step);
    TrainConfig rest = config(again, NotFinitePolicy::kSkip);
    const std::string folder = std::to_string(step);
    fs::create_directories(folder_.file(again));
    fs::copy(folder_.file("ckpt/" + folder), folder_.file(again + "/" + folder),
             fs::copy_options::recursive);
    ASSERT_THAT(run(rest).codes, Each(ExitCode::kOk));
    EXPECT_EQ(bytes_of(again, 12), bytes_of("ckpt", 12));
    EXPECT_EQ(samples_of(again, 12), 26U);
  }
}

// A skipped batch does not affect the scales: a run that never reads it ends with the same ones.
TEST_P(PassOver, SkipDoesNotChangeTheScales) {
  const Rare rare = rare_token(13);
  TrainConfig job = config("ckpt", NotFinitePolicy::kSkip);
  job.model.quantization = {.type = QuantizationType::kFp8Delayed, .amax_history_length = 16};
  plant(job, rare.token);
  ASSERT_THAT(run(job).codes, Each(ExitCode::kOk));

  const std::string step = std::to_string(rare.batch);
  fs::create_directories(folder_.file("spared"));
  fs::copy(folder_.file("ckpt/" + step), folder_.file("spared/" + step),
           fs::copy_options::recursive);
  auto manifest = read_manifest(folder_.file("spared/" + step));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->info.samples = 2 * (rare.batch + 1);
  write_file(folder_.file("spared/" + step + "/" + kManifestFile), manifest_text(*manifest));
  job.checkpoint_directory = folder_.file("spared");
  const RunResult spared = run(job);
  ASSERT_THAT(spared.codes, Each(ExitCode::kOk));
  EXPECT_THAT(spared.err, Not(HasSubstr("not finite")));
  EXPECT_EQ(bytes_of("spared", 12), bytes_of("ckpt", 12));
}

TEST_P(PassOver, RollbackReturnsAndContinuesAfterTheBatch) {
  const Rare rare = rare_token(15);  // as many batches as both attempts read
  TrainConfig job = config("ckpt", NotFinitePolicy::kRollback);
  job.checkpoint_period = 3;
  plant(job, rare.token);
  const RunResult result = run(job);
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  const int64_t newest = rare.batch / 3 * 3;
  const std::string undone =
      newest == rare.batch ? "no step is undone"
                           : absl::StrCat("steps ", newest, " to ", rare.batch - 1, " are undone");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("back to the newest checkpoint, rollback 1 of at most 4"),
                    HasSubstr(absl::StrCat("rollback: resuming with step ", newest, "; ", undone,
                                           ", and global samples ", 2 * newest, " to ",
                                           2 * rare.batch + 1, " are not trained on again"))));
  EXPECT_THAT(result.out, HasSubstr("restored checkpoint " + folder_.file("ckpt/") +
                                    std::to_string(newest) + ": "));
  // Steps 0 … batch - 1, then from the checkpoint's step on.
  EXPECT_EQ(result.records[0].size(), static_cast<size_t>(rare.batch + 12 - newest));
  EXPECT_EQ(result.records[0][static_cast<size_t>(rare.batch)].step, newest);
  EXPECT_EQ(samples_of("ckpt", 12), static_cast<uint64_t>(2 * (rare.batch + 1 + 12 - newest)));
}

TEST_P(PassOver, RollbackWithoutACheckpointStartsFromTheBeginning) {
  TrainConfig job = on_axis(tiny_config(2));
  job.optimizer.learning_rate = 1e30;
  job.optimizer.warmup_steps = 0;
  job.enable_checkpointing = true;
  job.checkpoint_directory = folder_.file("none");
  job.checkpoint_period = 1000;
  job.not_finite_policy = NotFinitePolicy::kRollback;
  const RunResult result = run(job);
  EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("rollback 4 of at most 4"),
                    HasSubstr("the job has returned to this checkpoint 4 times already")));
  // Every attempt computes the same first step from the same parameters.
  const auto rollbacks = static_cast<size_t>(job.max_rollbacks);
  const std::vector<double> losses = result.losses();
  ASSERT_EQ(losses.size() % (rollbacks + 1), 0U);
  const size_t attempt = losses.size() / (rollbacks + 1);
  EXPECT_EQ(losses[0], losses[attempt]);
  EXPECT_EQ(losses[0], losses[attempt * rollbacks]);
}

TEST_P(PassOver, RollbackWithoutACheckpointResetsTrainedParameters) {
  const Rare rare = rare_token(20);  // as many batches as both attempts read
  TrainConfig job = config("gone", NotFinitePolicy::kRollback);
  job.checkpoint_period = 1000;
  job.optimizer.learning_rate = 1e-2;
  job.model.quantization = {.type = QuantizationType::kFp8Delayed, .amax_history_length = 16};
  plant(job, rare.token);
  const RunResult result = run(job, [&](int rank, const StepRecord& record, std::atomic<bool>&) {
    if (rank == 0 && record.step == 0) fs::remove_all(folder_.file("gone/0"));
  });
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  TrainConfig again = job;
  again.checkpoint_directory = folder_.file("again");
  plant(again, std::nullopt, static_cast<uint64_t>(2 * (rare.batch + 1)));
  const RunResult reference = run(again);
  const std::vector<double> losses = result.losses();
  ASSERT_EQ(losses.size(), static_cast<size_t>(rare.batch + 12));
  EXPECT_EQ(std::vector<double>(losses.begin() + rare.batch, losses.end()), reference.losses());
}

// After training has begun no error is bad input, which is not retried.
TEST_P(PassOver, ARollbackThatCannotRestoreIsAFailure) {
  const Rare rare = rare_token(13);
  TrainConfig job = config("ckpt", NotFinitePolicy::kRollback);
  job.checkpoint_period = 1000;
  plant(job, rare.token);
  const std::string manifest = folder_.file("ckpt/0/manifest.json");
  const RunResult result = run(job, [&](int rank, const StepRecord& record, std::atomic<bool>&) {
    if (rank != 0 || record.step != 0) return;
    std::string text = read_file(manifest);
    const std::string version = "\"version\": 3";
    text.replace(text.find(version), version.size(), "\"version\": 9");
    write_file(manifest, text);
  });
  EXPECT_THAT(result.codes, Each(ExitCode::kFailure)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 0: rollback: "));
}

TEST_P(PassOver, PoisonedParametersEndSkippingToo) {
  TrainConfig job = config("ckpt", NotFinitePolicy::kSkip);
  RankModel rank_model(of_one_rank(job), 1);
  init_params(rank_model.table(), 0, rank_model.model().params().data());
  std::ranges::fill(rank_model.model().params(), std::nanf(""));
  const CheckpointStore store(job.checkpoint_directory, -1);
  ASSERT_TRUE(store.prepare().ok());
  std::vector<std::string> notes;
  const CheckpointInfo info{.folder = "", .step = 2, .samples = 4, .config = to_json(job)};
  ASSERT_TRUE(
      store.save(info, rank_model.plan().checkpoint_layout(), rank_model.state(), notes).ok());
  const RunResult result = run(job);
  EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("is parameter model.embed_tokens.weight"),
                    HasSubstr("skipped, number 8 in a row of at most 8"),
                    HasSubstr("the 8 batches before it were skipped, too"),
                    HasSubstr("global samples 4 to 5"), HasSubstr("global samples 20 to 21")));
  EXPECT_TRUE(result.records[0].empty());
}

// A rank with a request to stop while a batch is skipped leaves after it, and saves nothing new.
TEST_P(PassOver, AStopDuringASkipIsHonoured) {
  const Rare rare = rare_token(13);
  const TrainConfig job = config("ckpt", NotFinitePolicy::kSkip);
  plant(job, rare.token);
  const RunResult first =
      run(job, [&](int rank, const StepRecord& record, std::atomic<bool>& stop) {
        if (rank == 1 && record.step == rare.batch - 1) stop = true;
      });
  EXPECT_THAT(first.codes, Each(ExitCode::kPreempted)) << first.err;
  EXPECT_THAT(first.out, HasSubstr("stopped on request: " + std::to_string(rare.batch) + " of 12"));
  const RunResult second = run(job);
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_EQ(samples_of("ckpt", 12), 26U);
}

INSTANTIATE_TEST_SUITE_P(Axes, PassOver, testing::Values(MeshAxis::kData, MeshAxis::kFsdp),
                         [](const auto& test) {
                           return std::string(kMeshAxisNames[static_cast<size_t>(test.param)]);
                         });

}  // namespace
}  // namespace muster::trainer

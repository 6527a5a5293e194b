// Spikes without a policy, with skipped updates and with rollbacks. The property of a
// rollback is that its training equals, bit for bit, an undisturbed one on the data without the
// skipped samples.
#include <gmock/gmock.h>

#include <filesystem>
#include <numeric>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/trainer_core/recovery/spikes_fixture.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

TEST_F(Spikes, ARollbackRecoversTheLevelOfAnUndisturbedTraining) {
  // 6 steps are corrupted, so that the data after the first rollback takes the job back once more.
  // The training ends before it has recovered by itself.
  const int64_t steps = kBegin + 10;
  make_data("clean", {});
  make_data("corrupted", {kBegin, kBegin + 6});
  make_data("spared", {}, {kNewest, kBegin + 6});
  make_data("evaluated", {}, {0, kDataSteps - 40});
  const auto evaluating = [&](TrainConfig config) {
    config.steps = steps;
    config.eval.interval = steps;
    config.eval.dataset_path = folder_.file("evaluated");
    config.eval.per_device_batch_size = 4;
    return run(config);
  };
  const RunResult clean = evaluating(config("clean", "of_clean"));
  const RunResult spoilt = evaluating(config("corrupted", "of_corrupted"));
  const RunResult spared = evaluating(config("spared", "of_spared"));
  const RunResult result = evaluating(rolling_back("corrupted", "ckpt"));
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("rollback: resuming with step 84; steps 84 to 95 are undone, and "
                              "global samples 336 to 387 are not trained on again"),
                    HasSubstr("rollback: resuming with step 84; steps 84 to 85 are undone, and "
                              "global samples 388 to 399 are not trained on again")));
  std::vector<int64_t> expected(kBegin + 2);
  std::iota(expected.begin(), expected.end(), 0);
  for (const int64_t repeated : {kNewest, kNewest + 1}) expected.push_back(repeated);
  for (int64_t step = kNewest; step < steps; ++step) expected.push_back(step);
  EXPECT_EQ(steps_of(result), expected);
  EXPECT_EQ(info_of("ckpt", steps).samples,
            static_cast<uint64_t>((kBegin + 6 + steps - kNewest) * kBatch));

  // The training is the undisturbed one on the data without the skipped samples.
  EXPECT_EQ(final_bytes("ckpt", steps), final_bytes("of_spared", steps));
  const auto level = [](const RunResult& run) { return run.evaluations[0].back().loss; };
  EXPECT_EQ(level(result), level(spared));
  // It has read other samples than the training on all of the clean data. That changes its level
  // less than the corrupted samples do without the policy.
  EXPECT_LT(std::abs(level(result) - level(clean)), level(spoilt) - level(clean));
}

// Decisions do not depend on the mesh.
TEST_F(Spikes, AllMeshesDecideAlike) {
  make_data("corrupted", {kBegin, kBegin + 6});
  const RunResult one = run(rolling_back("corrupted", "of_one"));
  ASSERT_THAT(one.codes, Each(ExitCode::kOk)) << one.err;
  const std::vector<std::string> spikes = spikes_in(one.err);
  EXPECT_THAT(spikes, testing::ElementsAre("376 to 379", "380 to 383", "384 to 387", "388 to 391",
                                           "392 to 395", "396 to 399"));
  for (const bool shares_parameters : {false, true}) {
    TrainConfig config = rolling_back("corrupted", absl::StrCat("of_two", shares_parameters), 2);
    if (shares_parameters) config = along_fsdp(config);
    const RunResult two = run(config);
    ASSERT_THAT(two.codes, Each(ExitCode::kOk)) << two.err;
    EXPECT_EQ(spikes_in(two.err), spikes);
    for (const size_t rank : {0U, 1U}) EXPECT_EQ(steps_of(two, rank), steps_of(one));
  }
}

// A checkpoint that is due in a spike is saved after it.
TEST_F(Spikes, AShortSpikeDelaysTheCheckpoint) {
  make_data("corrupted", {kBegin, kBegin + 2});
  const RunResult result = run(rolling_back("corrupted", "ckpt"));
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("its update is applied; number 2 in a row, number 3 takes "
                              "the job back"),
                    Not(HasSubstr("rollback:"))));
  EXPECT_THAT(result.out, AllOf(Not(HasSubstr("ckpt/96: ")), Not(HasSubstr("ckpt/97: ")),
                                HasSubstr("ckpt/99: "), HasSubstr("ckpt/108: ")));
}

// Spikes that come again and again delay it for at most one period.
TEST_F(Spikes, ALongSeriesOfShortSpikesDelaysOneCheckpoint) {
  make_data("corrupted", {kBegin, kBegin + 1});
  TrainConfig job = rolling_back("corrupted", "ckpt");
  job.spikes.rollback_after = 40;  // so many steps within the bounds end the series
  const RunResult result = run(job);
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.out, AllOf(Not(HasSubstr("ckpt/96: ")), HasSubstr("ckpt/108: ")));
}

// A rollback forgets the checkpoint that was due in the spike: one of the step after the rollback
// would replace that of before.
TEST_F(Spikes, ARollbackForgetsTheDelayedCheckpoint) {
  make_data("corrupted", {kBegin, kDataSteps});
  TrainConfig job = rolling_back("corrupted", "ckpt");
  job.max_rollbacks = 2;
  job.max_checkpoints_to_keep = 1;
  const RunResult result = run(job);
  EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite)) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("ckpt/85: ")));
  EXPECT_TRUE(has_checkpoint("ckpt", kNewest));
  EXPECT_EQ(result.records[0].back().skipped_batches, 13 + 3);
}

// MaxText's policy: a training whose spikes are skipped has the parameters of one on the data
// without them, with as many updates and the same learning rates.
TEST_F(Spikes, SkippedUpdatesLeaveNoTrace) {
  make_data("corrupted", {kBegin, kBegin + 2});
  make_data("spared", {}, {kBegin, kBegin + 2});
  for (const bool shares_parameters : {false, true}) {
    const auto skipping = [&](const std::string& data, const std::string& checkpoints) {
      TrainConfig config = this->config(data, absl::StrCat(checkpoints, shares_parameters), 2);
      config.spikes = {.skip_step = true, .interval = 64};
      return shares_parameters ? along_fsdp(config) : config;
    };
    TrainConfig shorter = skipping("spared", "of_spared");
    shorter.steps = kSteps - 2;
    const RunResult spared = run(shorter);
    ASSERT_THAT(spared.codes, Each(ExitCode::kOk)) << spared.err;
    EXPECT_THAT(spikes_in(spared.err), testing::IsEmpty());

    const TrainConfig job = skipping("corrupted", "ckpt");
    const std::string ckpt = fs::path(job.checkpoint_directory).filename();
    const RunResult result = run(job, [&](int rank, const StepRecord& record, std::atomic<bool>&) {
      if (rank == 0 && record.step == kBegin + 8) copy(ckpt, ckpt + "-killed");
    });
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    EXPECT_THAT(spikes_in(result.err), testing::ElementsAre("376 to 379", "380 to 383"));
    EXPECT_THAT(result.err, HasSubstr("its update is not applied"));
    EXPECT_EQ(result.records[1].size(), static_cast<size_t>(kSteps));
    EXPECT_EQ(result.records[1].back().skipped_batches, 2);
    EXPECT_EQ(result.records[0].back().learning_rate, spared.records[0].back().learning_rate);
    EXPECT_EQ(info_of(ckpt, kSteps).spikes.skipped_updates, 2);
    EXPECT_EQ(final_bytes(ckpt),
              final_bytes(absl::StrCat("of_spared", shares_parameters), kSteps - 2));

    TrainConfig rest = job;
    rest.checkpoint_directory = folder_.file(ckpt + "-killed");
    ASSERT_THAT(run(rest).codes, Each(ExitCode::kOk));
    EXPECT_EQ(final_bytes(ckpt + "-killed"), final_bytes(ckpt));
    EXPECT_EQ(info_of(ckpt + "-killed", kSteps).spikes, info_of(ckpt, kSteps).spikes);
  }
}

}  // namespace
}  // namespace muster::trainer

// Trainings on data with a corrupted stretch: what spikes do without a policy, with skipped updates
// and with rollbacks. Each sample is a document, so that data sets without some samples can be
// made: the property of a rollback is that its training equals, bit for bit, an undisturbed one on
// the data without the skipped samples.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/data/token_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr int32_t kVocab = 64;
constexpr int32_t kLength = 16;
constexpr int64_t kBatch = 4;  // samples per step
constexpr int64_t kSteps = 120;
constexpr int64_t kDataSteps = 240;
constexpr int64_t kBegin = 94;  // the first step of the corrupted data in an undisturbed training
constexpr int64_t kPeriod = 12;
constexpr int64_t kNewest = 84;  // the newest checkpoint before kBegin; the next is due in a spike

// Steps of an undisturbed training, in whose place the data is corrupted or left out.
struct Stretch {
  int64_t begin = 0;
  int64_t end = 0;
  bool has(int64_t sample) const { return sample >= begin * kBatch && sample < end * kBatch; }
};

class Spikes : public testing::Test {
 protected:
  // Writes a data set in which a token mostly determines the next one. The samples of `corrupted`
  // have random tokens; those of `without` are missing.
  void make_data(const std::string& name, Stretch corrupted, Stretch without = {}) const {
    std::mt19937 random(3);
    std::vector<Document> documents;
    for (int64_t sample = 0; sample < kDataSteps * kBatch; ++sample) {
      Document document(kLength + 1);
      int32_t last = static_cast<int32_t>(random() % kVocab);
      for (int32_t& token : document) {
        const auto other = static_cast<int32_t>(random() % kVocab);
        const bool is_noise = random() % 10 == 0 || corrupted.has(sample);
        token = last = is_noise ? other : (5 * last + 3) % kVocab;
      }
      if (!without.has(sample)) documents.push_back(document);
    }
    fs::create_directories(folder_.file(name));
    make_token_folder(folder_.file(name), {documents}, kVocab);
  }

  TrainConfig config(const std::string& data, const std::string& checkpoints, int ranks = 1) const {
    TrainConfig config = tiny_config(ranks);
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file(data);
    config.packing = false;
    config.enable_data_shuffling = false;
    config.steps = kSteps;
    config.optimizer.learning_rate = 1e-2;
    config.optimizer.schedule_steps = 2 * kSteps;
    config.enable_checkpointing = true;
    config.async_checkpointing = false;  // a copy of the folder is what a killed job leaves
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = kPeriod;
    config.max_checkpoints_to_keep = 2;
    config.resume_with_other_data = true;
    return config;
  }

  // Rolls back after 3 spikes in a row.
  TrainConfig rolling_back(const std::string& data, const std::string& checkpoints,
                           int ranks = 1) const {
    TrainConfig config = this->config(data, checkpoints, ranks);
    config.spikes = {.interval = 64, .rollback_after = 3};
    config.not_finite_policy = NotFinitePolicy::kRollback;
    return config;
  }

  std::string final_bytes(const std::string& checkpoints, int64_t step = kSteps) const {
    return checkpoint_bytes(folder_.file(absl::StrCat(checkpoints, "/", step)));
  }
  bool has_checkpoint(const std::string& checkpoints, int64_t step) const {
    return fs::exists(folder_.file(absl::StrCat(checkpoints, "/", step)));
  }
  CheckpointInfo info_of(const std::string& checkpoints, int64_t step) const {
    const auto info =
        verify_checkpoint(folder_.file(absl::StrCat(checkpoints, "/", step)), /*checksums=*/true);
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() ? *info : CheckpointInfo{};
  }
  void copy(const std::string& from, const std::string& to) const {
    fs::copy(folder_.file(from), folder_.file(to), fs::copy_options::recursive);
  }

  TempFolder folder_;
};

std::vector<int64_t> steps_of(const RunResult& result, size_t rank = 0) {
  std::vector<int64_t> steps;
  for (const StepRecord& record : result.records[rank]) steps.push_back(record.step);
  return steps;
}

// Returns the samples of the lines about spikes.
std::vector<std::string> spikes_in(const std::string& log) {
  std::vector<std::string> samples;
  const std::string key = "global samples ";
  for (size_t at = log.find("spike: Step"); at != std::string::npos;
       at = log.find("spike: Step", at + 1)) {
    const size_t begin = log.find(key, at) + key.size();
    samples.push_back(log.substr(begin, log.find(':', begin) - begin));
  }
  return samples;
}

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

// Copies of the checkpoints at several steps are what a killed job leaves.
TEST_F(Spikes, AKilledTrainingResumesWithTheSameBitsAndSkipsOnce) {
  make_data("corrupted", {kBegin, kBegin + 6});
  for (const int ranks : {1, 2}) {
    const std::string ckpt = absl::StrCat("ckpt", ranks);
    const auto killed = [&](size_t records) { return absl::StrCat(ckpt, "-killed-", records); };
    // In a spike; after the first rollback, in the next spike; after the second one; later
    const std::vector<size_t> kills = {96, 97, 99, 110};
    size_t records = 0;
    const RunResult whole = run(rolling_back("corrupted", ckpt, ranks),
                                [&](int rank, const StepRecord&, std::atomic<bool>&) {
                                  if (rank != 0) return;
                                  ++records;
                                  if (std::ranges::count(kills, records) > 0)
                                    copy(ckpt, killed(records));
                                });
    ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
    for (const size_t kill : kills) {
      const RunResult rest = run(rolling_back("corrupted", killed(kill), ranks));
      ASSERT_THAT(rest.codes, Each(ExitCode::kOk)) << rest.err;
      EXPECT_EQ(final_bytes(killed(kill)), final_bytes(ckpt)) << kill;
      EXPECT_EQ(info_of(killed(kill), kSteps).samples, info_of(ckpt, kSteps).samples);
      // A spike that was skipped is not read again.
      const size_t skipped = kill == 96 ? 0 : kill == 97 ? 3 : 6;
      EXPECT_EQ(spikes_in(rest.err).size(), 6 - skipped) << kill << "\n" << rest.err;
    }
  }
}

TEST_F(Spikes, AStopInASpikeLeavesTheCheckpointOfBefore) {
  make_data("corrupted", {kBegin, kBegin + 6});
  const RunResult whole = run(rolling_back("corrupted", "whole"));
  for (const int ranks : {1, 2}) {
    const std::string ckpt = absl::StrCat("ckpt", ranks);
    const RunResult first = run(rolling_back("corrupted", ckpt, ranks),
                                [](int rank, const StepRecord& record, std::atomic<bool>& stop) {
                                  if (rank == 0 && record.step == kBegin) stop = true;
                                });
    EXPECT_THAT(first.codes, Each(ExitCode::kPreempted)) << first.err;
    EXPECT_THAT(first.err, HasSubstr("no checkpoint is saved of the last steps, because they are "
                                     "spikes"));
    EXPECT_THAT(first.out, HasSubstr("stopped on request: 96 of 120 steps are completed"));
    EXPECT_TRUE(has_checkpoint(ckpt, kNewest));
    EXPECT_FALSE(has_checkpoint(ckpt, kBegin + 2));
    const RunResult second = run(rolling_back("corrupted", ckpt, ranks));
    ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
    if (ranks == 1) {
      EXPECT_EQ(final_bytes(ckpt), final_bytes("whole"));
    }
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
  EXPECT_THAT(result.out,
              AllOf(Not(HasSubstr("ckpt/96: ")), HasSubstr("ckpt/97: "), HasSubstr("ckpt/108: ")));
}

// All data is corrupted from some step on: the bound of rollbacks ends the job, and that of a
// restart does not begin again.
TEST_F(Spikes, TooManyRollbacksEndTheJob) {
  make_data("corrupted", {kBegin, kDataSteps});
  TrainConfig job = rolling_back("corrupted", "ckpt", 2);
  job.max_rollbacks = 2;
  const RunResult result = run(job);
  EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite)) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("back to the newest checkpoint, number 2 of at most 2"),
                    HasSubstr("Aborting training due to loss spikes. Step 86: loss "),
                    HasSubstr("the job has returned to this checkpoint 2 times already")));
  const RunResult again = run(job);
  EXPECT_THAT(again.codes, Each(ExitCode::kNotFinite)) << again.err;
  EXPECT_EQ(again.records[0].size(), 2U);
  EXPECT_THAT(again.err, Not(HasSubstr("rollback:")));
}

// Before the first checkpoint the job returns to its initial parameters, and a restart does so too.
TEST_F(Spikes, WithoutACheckpointARollbackBeginsAgain) {
  make_data("corrupted", {kBegin, kBegin + 3});
  make_data("rest", {}, {0, kBegin + 3});
  TrainConfig job = rolling_back("corrupted", "ckpt");
  job.checkpoint_period = 1000;
  size_t records = 0;
  const RunResult result = run(job, [&](int, const StepRecord&, std::atomic<bool>&) {
    if (++records == kBegin + 10) copy("ckpt", "killed");
  });
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("resuming with step 0; steps 0 to 95 are undone, and global "
                                    "samples 0 to 387 are not trained on again"));
  TrainConfig rest = config("rest", "of_rest");
  rest.checkpoint_period = 1000;
  ASSERT_THAT(run(rest).codes, Each(ExitCode::kOk));
  EXPECT_EQ(final_bytes("ckpt"), final_bytes("of_rest"));

  job.checkpoint_directory = folder_.file("killed");
  const RunResult second = run(job);
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_EQ(steps_of(second).front(), 0);
  EXPECT_THAT(spikes_in(second.err), testing::IsEmpty());
  EXPECT_EQ(final_bytes("killed"), final_bytes("ckpt"));
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

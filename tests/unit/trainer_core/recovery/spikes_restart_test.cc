// Restarts of trainings with spikes: they make the same decisions, and the bound of rollbacks
// holds.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

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
                                     "spikes or not finite: the next start begins with step 84"));
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

// The folder of the checkpoint of step 96 cannot be made, so that the job returns to that of step
// 84 each time.
TEST_F(Spikes, FailedSavesDoNotResetTheCountOfRollbacks) {
  make_data("corrupted", {kBegin + 3, kDataSteps});
  TrainConfig job = rolling_back("corrupted", "ckpt");
  job.max_rollbacks = 1;
  fs::create_directories(folder_.file("ckpt"));
  std::ofstream(folder_.file("ckpt/96")) << "a file";
  const RunResult result = run(job);
  EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite)) << result.err;
  const std::string line = "rollback: resuming with step 84";
  EXPECT_EQ(result.err.find(line), result.err.rfind(line)) << result.err;
}

// Local checkpoints store the state of spikes, too. Copies of the folders at a step are what a kill
// leaves.
TEST_F(Spikes, ARestartFromLocalCheckpointsDecidesAlike) {
  make_data("corrupted", {kBegin, kBegin + 6});
  const auto copy_all = [&](const std::string& from, const std::string& to) {
    for (const std::string name : {"ckpt", "memory"}) copy(from + name, to + name);
  };
  for (const bool rolls_back : {false, true}) {
    TrainConfig job =
        rolls_back ? rolling_back("corrupted", "ckpt", 2) : config("corrupted", "ckpt", 2);
    if (!rolls_back) job.spikes = {.skip_step = true, .interval = 64};
    job = along_fsdp(job);
    job.enable_emergency_checkpoint = true;
    job.local_checkpoint_period = 1;
    const auto run_job = [&](const SignalsHook& hook) {
      return run_ranks_with_signals({job, job}, hook, [this](int rank) {
        const std::string node = std::to_string(rank);
        return LocalStorage{folder_.file("memory/node" + node), "host" + node};
      });
    };
    bool is_killed = false;
    const RunResult whole = run_job([&](int rank, const StepRecord& record, StopSignals&) {
      if (rank == 0 && record.step == kBegin + 1 && !std::exchange(is_killed, true))
        copy_all("", "killed-");
    });
    ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
    const std::string bytes = final_bytes("ckpt");
    const SpikeState spikes = info_of("ckpt", kSteps).spikes;
    for (const std::string name : {"ckpt", "memory"}) fs::remove_all(folder_.file(name));
    copy_all("killed-", "");
    const RunResult rest = run_job([](int, const StepRecord&, StopSignals&) {});
    ASSERT_THAT(rest.codes, Each(ExitCode::kOk)) << rest.err;
    EXPECT_GT(steps_of(rest).front(), kNewest) << "from the nodes' memory\n" << rest.out;
    EXPECT_EQ(final_bytes("ckpt"), bytes);
    EXPECT_EQ(info_of("ckpt", kSteps).spikes, spikes);
    for (const std::string name : {"ckpt", "killed-ckpt", "killed-memory"})
      fs::remove_all(folder_.file(name));
  }
}

// The level of the loss on other data may be another one.
TEST_F(Spikes, OtherDataBeginsWithAnEmptyWindow) {
  make_data("clean", {});
  make_data("other", {0, kDataSteps});
  TrainConfig job = rolling_back("clean", "ckpt");
  job.steps = kNewest;
  ASSERT_THAT(run(job).codes, Each(ExitCode::kOk));
  job = rolling_back("other", "ckpt");
  const RunResult result = run(job);
  EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(spikes_in(result.err), testing::IsEmpty());
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
              AllOf(HasSubstr("back to the newest checkpoint, rollback 2 of at most 2"),
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

}  // namespace
}  // namespace muster::trainer

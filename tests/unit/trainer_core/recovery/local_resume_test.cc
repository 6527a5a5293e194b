// A training that resumes from its nodes' memory equals the undisturbed one, bit for bit.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/recovery/step_guard.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class LocalResume : public testing::Test {
 protected:
  // Two ranks on two nodes.
  LocalStorage place(int rank) const {
    return {folder_.file("memory/node" + std::to_string(rank)), "host" + std::to_string(rank)};
  }
  TrainConfig config(const std::string& checkpoints) const {
    TrainConfig config = along_fsdp(tiny_config(2));
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = 1'000;
    config.save_checkpoint_on_completion = false;
    config.enable_emergency_checkpoint = true;
    config.local_checkpoint_period = 3;
    return config;
  }
  RunResult run_with(const TrainConfig& config, const SignalsHook& hook = nullptr) {
    const SignalsHook nothing = [](int, const StepRecord&, StopSignals&) {};
    return run_ranks_with_signals({config, config}, hook ? hook : nothing,
                                  [this](int rank) { return place(rank); });
  }

  // Returns the step of a node's only save, of both ranks; -1: it has none, or one is being
  // written.
  int64_t step_on(int node) const {
    std::vector<fs::path> saves;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(place(node).folder, none))
      saves.push_back(entry.path());
    const bool whole = saves.size() == 1 && fs::exists(saves[0] / "part-00000.json") &&
                       fs::exists(saves[0] / "part-00001.json");
    return whole ? step_of_local_save(saves[0].filename().string()) : -1;
  }
  // Runs `steps` and keeps the nodes' folders of the last one, as if all ranks were killed then.
  // Returns its step.
  void run_and_die(TrainConfig config, int64_t steps, int64_t& at) {
    config.steps = steps;
    const RunResult result =
        run_with(config, [&](int rank, const StepRecord& record, StopSignals&) {
          if (rank != 0 || record.step < steps - 1) return;
          for (at = -1; at < 0 || at != step_on(1); at = step_on(0))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          fs::copy(folder_.file("memory"), folder_.file("kept"), fs::copy_options::recursive);
        });
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    EXPECT_THAT(result.out, HasSubstr("saved local checkpoint of step " +
                                      std::to_string(config.local_checkpoint_period) + ": "));
    for (const int node : {0, 1})
      EXPECT_FALSE(fs::exists(place(node).folder)) << "a job that has completed leaves nothing";
    fs::remove_all(folder_.file("memory"));
    fs::rename(folder_.file("kept"), folder_.file("memory"));
  }

  TempFolder folder_;
};

TEST_F(LocalResume, FromMemoryIsBitIdentical) {
  TrainConfig undisturbed = config("whole");
  undisturbed.enable_emergency_checkpoint = false;
  const std::vector<double> whole = run_with(undisturbed).losses();
  for (const bool in_background : {true, false}) {
    TrainConfig parts = config("parts");
    parts.async_checkpointing = in_background;
    fs::remove_all(parts.checkpoint_directory);
    int64_t at = 0;
    run_and_die(parts, 14, at);
    const RunResult second = run_with(parts);
    ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
    EXPECT_THAT(second.out, HasSubstr("restored local checkpoint of step " + std::to_string(at) +
                                      " (own copies) in "));
    EXPECT_EQ(second.losses(), std::vector<double>(whole.begin() + at, whole.end()));
  }
}

TEST_F(LocalResume, WeightsInBf16AreBitIdentical) {
  const auto narrow = [&](const std::string& name) {
    TrainConfig with = config(name);
    with.dtype = with.weight_dtype = with.optimizer.mu_dtype = ComputeType::kBfloat16;
    return with;
  };
  const std::vector<double> whole = run_with(narrow("whole")).losses();
  int64_t at = 0;
  run_and_die(narrow("parts"), 14, at);
  fs::remove_all(place(0).folder);
  const RunResult second = run_with(narrow("parts"));
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_THAT(second.out, HasSubstr("restored local checkpoint of step " + std::to_string(at)));
  EXPECT_EQ(second.losses(), std::vector<double>(whole.begin() + at, whole.end()));
}

TEST_F(LocalResume, ALostNodeIsRestoredFromTheOthersCopy) {
  const std::vector<double> whole = run_with(config("whole")).losses();
  int64_t at = 0;
  run_and_die(config("parts"), 14, at);
  fs::remove_all(place(0).folder);
  bool is_complete_again = false;
  const RunResult second =
      run_with(config("parts"), [&](int rank, const StepRecord& record, StopSignals&) {
        if (rank != 0 || record.step != at + 1) return;
        for (int i = 0; i < 30'000 && !is_complete_again; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          is_complete_again = step_on(0) == at + 1 && step_on(1) == at + 1;
        }
      });
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_TRUE(is_complete_again) << "two copies after one step, and not after a period";
  EXPECT_THAT(second.out, HasSubstr("restored local checkpoint of step " + std::to_string(at) +
                                    " (own copies; 2 files from rank 1's node) in "));
  EXPECT_EQ(second.losses(), std::vector<double>(whole.begin() + at, whole.end()));
}

// The keeper is alive, but the folder that its worker names is gone.
TEST_F(LocalResume, WithoutAnyCopyTheNewestCheckpointIsRestored) {
  TrainConfig shared = config("whole");
  const std::vector<double> whole = run_with(shared).losses();
  TrainConfig parts = config("parts");
  parts.checkpoint_period = 10;
  int64_t at = 0;
  run_and_die(parts, 14, at);
  fs::remove_all(folder_.file("memory"));
  const RunResult second = run_with(parts);
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_THAT(second.out, Not(HasSubstr("restored local checkpoint")));
  EXPECT_THAT(second.out, HasSubstr("saved local checkpoint of step"));
  EXPECT_EQ(second.losses(), std::vector<double>(whole.begin() + 10, whole.end()));
}

TEST_F(LocalResume, ANewerCheckpointIsPreferred) {
  TrainConfig parts = config("parts");
  parts.checkpoint_period = 10;
  int64_t at = 0;
  run_and_die(parts, 11, at);
  const RunResult second = run_with(parts);
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_THAT(second.out, HasSubstr("restored checkpoint " + folder_.file("parts/10")));
  EXPECT_EQ(second.records[0].front().step, 10);
}

TEST_F(LocalResume, ASaveOfAnotherRunIsNotUsed) {
  int64_t at = 0;
  run_and_die(config("parts"), 8, at);
  TrainConfig other = config("other");
  const RunResult second = run_with(other);
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_THAT(second.out, HasSubstr("local checkpoint of step " + std::to_string(at) +
                                    " is passed over: it has another "
                                    "checkpoint_directory"));
  EXPECT_EQ(second.records[0].front().step, 0);
}

// The best evaluation that a run continues with is that of the restored save, whatever other saves
// the nodes have.
TEST_F(LocalResume, OtherSavesDoNotChangeTheBestEvaluation) {
  make_text_dataset(folder_.path());
  TrainConfig job = config("parts");
  job.model.vocab_size = kTextVocab;
  job.dataset_type = DatasetType::kShards;
  job.dataset_path = folder_.file("data");
  job.eval.holdout_fraction = 0.2;
  job.eval.interval = 5;
  job.eval.early_stopping_patience = 100;
  job.async_checkpointing = false;
  job.local_checkpoint_period = 1;
  const auto resume_after = [&](TrainConfig config, int64_t steps) {
    config.steps = steps;
    config.save_checkpoint_on_completion = true;
    const RunResult result = run_with(config);
    EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    const auto folder = config.checkpoint_directory + "/" + std::to_string(steps);
    const auto info = verify_checkpoint(folder, /*checksums=*/false);
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() ? info->evaluation : EvalProgress{};
  };
  int64_t at = 0;
  ASSERT_NO_FATAL_FAILURE(run_and_die(job, 8, at));
  fs::rename(folder_.file("memory"), folder_.file("older"));
  ASSERT_NO_FATAL_FAILURE(run_and_die(job, 13, at));
  ASSERT_EQ(at, 12);
  fs::copy(folder_.file("older"), folder_.file("memory"), fs::copy_options::recursive);
  const EvalProgress resumed = resume_after(job, 14);
  EXPECT_EQ(resumed.evaluated_step, 10);
  EXPECT_EQ(resumed.best_step, 10);

  fs::remove_all(folder_.file("memory"));
  fs::rename(folder_.file("older"), folder_.file("memory"));
  TrainConfig other = job;
  other.checkpoint_directory = folder_.file("other");
  const EvalProgress begun = resume_after(other, 4);
  EXPECT_EQ(begun.evaluated_step, -1) << "from a save that was rejected";
  EXPECT_EQ(begun.best_step, -1);
}

// The first step spoils the parameters, and the nodes' memory holds them: returning to that would
// fail forever.
TEST_F(LocalResume, ARollbackIgnoresSavesInMemory) {
  for (const int64_t checkpoint : {0, 2}) {
    TrainConfig job = config("spoilt" + std::to_string(checkpoint));
    job.steps = checkpoint;
    job.save_checkpoint_on_completion = true;
    if (checkpoint > 0) {
      ASSERT_THAT(run_with(job).codes, Each(ExitCode::kOk));
    }
    job.steps = 12;
    job.async_checkpointing = false;
    job.local_checkpoint_period = 1;
    job.not_finite_policy = NotFinitePolicy::kRollback;
    job.optimizer.learning_rate = 1e30;
    job.optimizer.warmup_steps = 0;
    constexpr int kStepsMax = 60;  // without a bound of the rollbacks it would not end
    std::atomic<int> steps = 0;
    const RunResult result =
        run_with(job, [&](int rank, const StepRecord& record, StopSignals& signals) {
          if (rank == 0 && ++steps == kStepsMax) signals.stop = true;
          if (record.step == checkpoint) {
            EXPECT_EQ(step_on(rank), -1) << "a save of before";
          }
        });
    EXPECT_THAT(result.codes, Each(ExitCode::kNotFinite)) << result.err;
    EXPECT_THAT(result.err, HasSubstr("the job has returned to this checkpoint 4 times already"));
    EXPECT_THAT(result.out, Not(HasSubstr("restored local checkpoint")));
    size_t attempts = 0;
    for (const StepRecord& record : result.records[0]) {
      if (record.step == checkpoint) ++attempts;
    }
    EXPECT_EQ(attempts, static_cast<size_t>(job.max_rollbacks + 1));
    for (const int node : {0, 1})
      EXPECT_EQ(step_on(node), result.records[0].back().step + 1) << "saved again after a rollback";
    fs::remove_all(folder_.file("memory"));
  }
}

// A folder that cannot be created is reported, and has no other effect.
TEST_F(LocalResume, WithoutAFolderTrainingContinues) {
  fs::create_directories(folder_.file("memory"));
  std::ofstream(place(1).folder) << "a file";
  const RunResult result = run_with(config("parts"));
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: no local checkpoints: rank 1: "));
  EXPECT_THAT(result.out, Not(HasSubstr("local checkpoint")));
}

}  // namespace
}  // namespace muster::trainer

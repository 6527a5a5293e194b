// Stopping and resuming: the resumed run equals the undisturbed one, bit for bit.
#include <gmock/gmock.h>

#include <set>

#include <gtest/gtest.h>

#include "tests/unit/meshes.h"
#include "tests/unit/trainer_core/recovery/resume_fixture.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/tools/decode.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

TEST_F(Resume, AfterAStopRequestIsBitIdentical) {
  const RunResult whole = run(config("whole"));
  ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
  // Only rank 1 receives a request: all ranks leave after the same step.
  const RunResult first =
      run(config("parts"), [](int rank, const StepRecord& record, std::atomic<bool>& stop) {
        if (rank == 1 && record.step == 6) stop = true;
      });
  EXPECT_THAT(first.codes, Each(ExitCode::kPreempted)) << first.err;
  EXPECT_THAT(first.out, HasSubstr("stopped on request: 8 of 20 steps are completed"));
  ASSERT_TRUE(fs::exists(folder_.file("parts/8/manifest.json")));
  const RunResult second = run(config("parts"));
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_THAT(second.out,
              HasSubstr("restored checkpoint " + folder_.file("parts/8") + ": 8 steps completed"));
  ASSERT_EQ(second.records[0].front().step, 8);
  for (size_t i = 0; i < second.records[0].size(); ++i) {
    EXPECT_EQ(second.losses()[i], whole.losses()[i + 8]);
    EXPECT_EQ(second.records[1][i].raw_grad_norm, whole.records[0][i + 8].raw_grad_norm);
  }
  EXPECT_EQ(model_bytes("whole", 20), model_bytes("parts", 20));
}

// Background saves during training equal those of a training that waits for the disk, at each
// period.
TEST_F(Resume, BackgroundSavesEqualSynchronousOnes) {
  for (const bool background : {false, true}) {
    TrainConfig with = config(background ? "background" : "waiting");
    with.async_checkpointing = background;
    with.per_device_batch_size = 1;
    with.gradient_accumulation_steps = 2;
    with.checkpoint_period = 3;
    const RunResult result = run(with);
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    EXPECT_THAT(result.out, ContainsRegex("saved checkpoint [^\n]*/18: [0-9.]+ MiB in [0-9.]+ s "
                                          "\\([0-9.]+ GB/s\\), training waited [0-9.]+ s"));
    EXPECT_EQ(result.checkpoint_steps[0], 20);
    double stalls = 0;
    for (const StepRecord& record : result.records[0]) stalls += record.checkpoint_stall_seconds;
    EXPECT_GT(stalls, 0);
    for (const StepRecord& record : result.records[1])
      EXPECT_EQ(record.checkpoint_stall_seconds, 0) << "rank 0 alone saves";
  }
  for (const int64_t step : {3, 6, 9, 12, 15, 18, 20})
    EXPECT_EQ(model_bytes("background", step), model_bytes("waiting", step)) << step;
}

TEST_F(Resume, ARequestedCheckpointIsSavedAfterTheStepAndChangesNothing) {
  TrainConfig requested = config("requested");
  requested.checkpoint_period = 1000;
  // Keys of a plan, which older versions of Muster cannot read in a checkpoint.
  requested.compiled_trainstep_file = "/plan";
  requested.planned_step_seconds = 2;
  requested.planned_communication_seconds = 1;
  requested.planned_data_seconds = requested.planned_checkpoint_seconds = 0.5;
  // Only rank 1 receives requests, two in one step.
  const RunResult result = run_ranks_with_signals(
      {requested, requested}, [](int rank, const StepRecord& record, StopSignals& signals) {
        if (rank == 1 && record.step == 6) signals.checkpoint = true;
      });
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.out, HasSubstr("saved checkpoint " + folder_.file("requested/8") + ": "));
  std::set<std::string> saved;
  for (const auto& entry : fs::directory_iterator(folder_.file("requested")))
    if (entry.is_directory()) saved.insert(entry.path().filename());
  EXPECT_EQ(saved, (std::set<std::string>{"8", "20"}));
  const std::string manifest = read_file(folder_.file("requested/8/manifest.json"));
  EXPECT_THAT(manifest, AllOf(HasSubstr("checkpoint_period"), Not(HasSubstr("planned_")),
                              Not(HasSubstr("compiled_trainstep_file"))));
  ASSERT_THAT(run(config("whole")).codes, Each(ExitCode::kOk));
  EXPECT_EQ(model_bytes("requested", 20), model_bytes("whole", 20));
  fs::remove_all(folder_.file("requested/20"));
  ASSERT_THAT(run(requested).codes, Each(ExitCode::kOk));
  EXPECT_EQ(model_bytes("requested", 20), model_bytes("whole", 20));
}

// Each optimizer's whole state is saved, read and sent to the other ranks.
TEST_F(Resume, EveryOptimizerResumesBitForBit) {
  for (const OptimizerType type :
       {OptimizerType::kAdamPax, OptimizerType::kSgd, OptimizerType::kAdafactor}) {
    const auto of_type = [&](const std::string& name) {
      TrainConfig with = config(name + std::to_string(static_cast<int>(type)));
      with.optimizer.type = type;
      with.optimizer.update_clip = 0.5;
      with.model.emb_dim = 128;  // large enough for Adafactor's factors
      return with;
    };
    ASSERT_NO_FATAL_FAILURE(expect_resumes(of_type));
  }
}

// Moments in bf16 are stored as rounded during training; and a run may switch between the types.
TEST_F(Resume, MomentsInBf16ResumeBitForBit) {
  const auto rounded = [&](const std::string& name) {
    TrainConfig with = config("mu-" + name);
    with.optimizer.mu_dtype = ComputeType::kBfloat16;
    with.optimizer.mu_stochastic_rounding = true;
    return with;
  };
  ASSERT_NO_FATAL_FAILURE(expect_resumes(rounded));
  EXPECT_LT(fs::file_size(rounded("whole").checkpoint_directory +
                          "/20/optimizer-00000-00000.safetensors"),
            fs::file_size(rounded("whole").checkpoint_directory +
                          "/20/optimizer-00000-00001.safetensors") *
                11 / 20)
      << "m is half of v";
  TrainConfig back = rounded("parts");
  back.optimizer = {};
  back.steps = 30;
  const RunResult result = run(back);
  EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_EQ(result.losses().size(), 10U);
  back.optimizer.mu_dtype = ComputeType::kBfloat16;
  back.steps = 40;
  EXPECT_THAT(run(back).codes, Each(ExitCode::kOk));
}

// Scales, their history and the rounding noise resume, too, and decoding uses the scales. Another
// run may begin with the parameters alone.
TEST_F(Resume, EveryQuantizationResumesBitForBit) {
  for (const QuantizationType type :
       {QuantizationType::kInt8, QuantizationType::kFp8Delayed, QuantizationType::kFp8Current}) {
    const auto of_type = [&](const std::string& name) {
      TrainConfig with = config(name + std::to_string(static_cast<int>(type)));
      with.model.quantization = {.type = type, .amax_history_length = 12};
      return with;
    };
    ASSERT_NO_FATAL_FAILURE(expect_resumes(of_type));

    DecodeOptions options;
    options.checkpoint = of_type("whole").checkpoint_directory + "/20";
    options.prompts = {"And it came to"};
    options.max_tokens = 5;
    EXPECT_TRUE(decode(of_type("whole"), options).ok());

    TrainConfig loaded = config("loaded" + std::to_string(static_cast<int>(type)));
    loaded.load_parameters_path = of_type("whole").checkpoint_directory;
    loaded.steps = 1;
    const RunResult result = run(loaded);
    EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  }
}

TEST_F(Resume, ACheckpointWithoutTheNeededScalesIsRefused) {
  TrainConfig first = config("plain");
  first.steps = 5;
  ASSERT_THAT(run(first).codes, Each(ExitCode::kOk));
  TrainConfig other = config("plain");
  other.model.quantization.type = QuantizationType::kFp8Delayed;
  const RunResult result = run(other);
  EXPECT_THAT(result.codes, Each(ExitCode::kBadInput));
  EXPECT_THAT(result.err, HasSubstr("model.layers.0.self_attn.qkv_proj.input_scale"));
}

TEST_F(Resume, AnotherOptimizerIsRefusedWithBothNames) {
  TrainConfig first = config("parts");
  first.steps = 5;
  ASSERT_THAT(run(first).codes, Each(ExitCode::kOk));
  TrainConfig other = config("parts");
  other.optimizer.type = OptimizerType::kAdamPax;
  const RunResult result = run(other);
  EXPECT_THAT(result.codes, Each(ExitCode::kBadInput));
  EXPECT_THAT(result.err, HasSubstr("has the state of opt_type=adamw, which opt_type=adam_pax "
                                    "cannot use; set opt_type=adamw, or another run_name"));
}

// On a node that has not mounted the file system the folder is empty.
TEST_F(Resume, AMissingKnownCheckpointIsAnErrorAndNoNewStart) {
  const std::vector<TrainConfig> configs(2, config("gone"));
  const auto after = [&](uint64_t known) {
    return run_ranks_with_signals(
        configs, [](int, const StepRecord&, StopSignals&) {}, nullptr, known);
  };
  const RunResult refused = after(15);
  EXPECT_THAT(refused.codes, Each(ExitCode::kStorageAway)) << "it is tried again, elsewhere";
  EXPECT_THAT(refused.err, HasSubstr("an earlier attempt has saved step 15 in " +
                                     configs[0].checkpoint_directory));
  EXPECT_THAT(refused.records, Each(testing::IsEmpty()));
  EXPECT_THAT(after(0).codes, Each(ExitCode::kOk));
  EXPECT_THAT(after(15).codes, Each(ExitCode::kOk)) << "now there is one";
}

TEST_F(Resume, FallsBackFromATornCheckpoint) {
  ASSERT_THAT(run(config("whole")).codes, Each(ExitCode::kOk));
  fs::copy(folder_.file("whole"), folder_.file("torn"), fs::copy_options::recursive);
  fs::resize_file(folder_.file("torn/20/model-00000-00000.safetensors"), 1000);
  fs::remove(folder_.file("torn/15/manifest.json"));
  const RunResult again = run(config("torn"));
  ASSERT_THAT(again.codes, Each(ExitCode::kOk)) << again.err;
  EXPECT_THAT(again.out,
              HasSubstr("torn/20 is passed over: model-00000-00000.safetensors is truncated"));
  EXPECT_THAT(again.out, HasSubstr("torn/15 is passed over: it has no manifest.json"));
  EXPECT_THAT(again.out, HasSubstr("restored checkpoint " + folder_.file("torn/10")));
  EXPECT_EQ(model_bytes("whole", 20), model_bytes("torn", 20));
}

TEST_F(Resume, AnotherNumberOfRanksResumesWithTheSameData) {
  const RunResult whole = run(config("whole"));
  fs::create_directories(folder_.file("four"));
  fs::copy(folder_.file("whole/10"), folder_.file("four/10"), fs::copy_options::recursive);
  const RunResult four = run(config("four", 4));
  ASSERT_THAT(four.codes, Each(ExitCode::kOk)) << four.err;
  ASSERT_EQ(four.records[0].size(), 10U);
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(four.losses()[i] / whole.losses()[i + 10], 1, 1e-5);
}

// Ranks that share the storage of the model save it together, in the background and at the end, and
// resume from it.
TEST_F(Resume, OfShardsIsBitIdentical) {
  const auto sharded = [&](const std::string& name) {
    TrainConfig with = config(name, 4);
    with.mesh.ici = {2, 1, 2, 1, 1, 1, 1};
    with.optimizer.type = OptimizerType::kAdafactor;
    with.model.emb_dim = 128;  // large enough for Adafactor's factors
    return with;
  };
  ASSERT_NO_FATAL_FAILURE(expect_resumes(sharded));
  const auto manifest = read_manifest(folder_.file("whole/20"));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::set<std::string> names;
  for (const StoredFile& file : manifest->files) names.insert(file.name);
  EXPECT_EQ(names, (std::set<std::string>{
                       "model-00000-00000.safetensors", "model-00001-00000.safetensors",
                       "optimizer-00000-00000.safetensors", "optimizer-00001-00000.safetensors"}))
      << "of the ranks that are first along data";
}

// From one rank to many and back: the loss curve continues.
class ResumeElsewhere : public Resume {
 protected:
  void expect_the_same_curve(const ExpertConfig& experts, const std::vector<Degrees>& meshes);
};

void ResumeElsewhere::expect_the_same_curve(const ExpertConfig& experts,
                                            const std::vector<Degrees>& meshes) {
  TrainConfig all = config("whole", 1);
  all.model.experts = experts;
  const RunResult whole = run(all);
  ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
  std::string from = folder_.file("whole/5");
  int64_t done = 5;
  for (const Degrees& degrees : meshes) {
    const std::string name = "part" + std::to_string(done);
    fs::create_directories(folder_.file(name));
    fs::copy(from, folder_.file(name + "/" + std::to_string(done)), fs::copy_options::recursive);
    const Mesh mesh = mesh_of({.ici = degrees});
    TrainConfig part = config(name, mesh.ranks());
    part.model.experts = experts;
    part.mesh.ici = degrees;
    part.optimizer.schedule_steps = 20;
    part.steps = done + 5;
    const RunResult result = run(part);
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    ASSERT_EQ(result.losses().size(), 5U) << mesh.to_string();
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(result.losses()[i] / whole.losses()[i + static_cast<size_t>(done)], 1, 1e-5)
          << mesh.to_string() << ", step " << done + static_cast<int64_t>(i);
    }
    done += 5;
    from = folder_.file(name + "/" + std::to_string(done));
  }
}

TEST_F(ResumeElsewhere, AnyMeshContinuesTheSameCurve) {
  expect_the_same_curve({}, {{1, 1, 4, 1, 1, 1, 1}, {2, 1, 2, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}});
}

TEST_F(ResumeElsewhere, ExpertsOnOtherRanksContinueTheSameCurve) {
  expect_the_same_curve({.count = 4, .per_token = 2, .mlp_dim = 24, .capacity_factor = 1},
                        {{1, 1, 1, 1, 1, 2, 1}, {1, 1, 1, 1, 1, 4, 1}, {1, 1, 2, 1, 1, 1, 1}});
}

// Replaces the checkpoint directory by a file after `step`.
StepHook lose_directory(const std::string& directory, int64_t step) {
  return [=](int rank, const StepRecord& record, std::atomic<bool>&) {
    if (rank != 0 || record.step != step) return;
    fs::remove_all(directory);
    write_file(directory, "a file in the directory's place");
  };
}

// There are four saves: the first succeeds, the next two fail with warnings, and the last one must
// not fail.
TEST_F(Resume, AFailedSaveIsAWarningExceptForTheLastOne) {
  TrainConfig blocking = config("gone");
  blocking.async_checkpointing = false;
  const RunResult result = run(blocking, lose_directory(folder_.file("gone"), 7));
  EXPECT_EQ(result.codes[0], ExitCode::kStorageAway) << result.err;
  EXPECT_EQ(result.codes[1], ExitCode::kOk) << "nothing was wrong with its steps";
  EXPECT_EQ(result.records[0].size(), 20U);
  EXPECT_THAT(result.err, HasSubstr("warning: checkpoint of step 10 is not saved: "));
  EXPECT_THAT(result.err,
              HasSubstr("training continues (failure 1 in a row; number 3 ends the job)"));
  EXPECT_THAT(result.err,
              HasSubstr("training continues (failure 2 in a row; number 3 ends the job)"));
  EXPECT_THAT(result.err, HasSubstr("rank 0: checkpoint: checkpoint of step 20 is not saved: "));
  // Rank 0 saved step 5; rank 1 has no information about it.
  EXPECT_EQ(result.checkpoint_steps, (std::vector<int64_t>{5, -1}));
}

TEST_F(Resume, TheThirdFailureInARowEndsTheJob) {
  const RunResult result = run(config("gone"), lose_directory(folder_.file("gone"), 1));
  EXPECT_EQ(result.codes[0], ExitCode::kStorageAway) << result.err;
  EXPECT_EQ(result.codes[1], ExitCode::kPeerLost) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: checkpoint of step 5 is not saved: "));
  EXPECT_THAT(result.err, HasSubstr("warning: checkpoint of step 10 is not saved: "));
  EXPECT_THAT(result.err, ContainsRegex("rank 0: checkpoint: checkpoint of step 15 is not saved: "
                                        "[^\n]*; the 2 checkpoints before it failed, too"));
}

TEST_F(Resume, ARankWhoseDirectoryIsTakenEndsWithOneSentence) {
  const RunResult result =
      run(config("taken", 1), [&](int, const StepRecord& record, std::atomic<bool>&) {
        if (record.step != 7) return;
        CheckpointStore other(folder_.file("taken"), 1);
        EXPECT_TRUE(other.open({.job = 3, .attempt = 2, .incarnation = 1}).ok());
      });
  EXPECT_EQ(result.codes[0], ExitCode::kFailure);
  EXPECT_THAT(result.err, HasSubstr("belongs to attempt 2 of job 3 now"));
  EXPECT_FALSE(fs::exists(folder_.file("taken/10")));
}

TEST_F(Resume, OfACompletedRunDoesNothing) {
  ASSERT_THAT(run(config("done")).codes, Each(ExitCode::kOk));
  const RunResult again = run(config("done"));
  EXPECT_THAT(again.codes, Each(ExitCode::kOk)) << again.err;
  EXPECT_TRUE(again.records[0].empty());
  EXPECT_THAT(again.out, HasSubstr("nothing to do: 20 steps are completed"));
}

TEST_F(Resume, OfAnotherModelNamesTheTensorOnEveryRank) {
  ASSERT_THAT(run(config("old")).codes, Each(ExitCode::kOk));
  TrainConfig wider = config("old");
  wider.model.mlp_dim = 64;
  const RunResult result = run(wider);
  EXPECT_THAT(result.codes, Each(ExitCode::kBadInput));
  EXPECT_THAT(
      result.err,
      HasSubstr(
          "tensor model.layers.0.mlp.gate_proj.weight has shape [48, 32] there and [64, 32]"));
  EXPECT_THAT(result.err, HasSubstr("rank 1: start: rank 0 could not restore"));
}

}  // namespace
}  // namespace muster::trainer

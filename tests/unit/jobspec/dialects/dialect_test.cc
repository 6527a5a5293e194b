// Command lines as users have them in their scripts.
#include "jobspec/dialects/dialect.h"

#include <gmock/gmock.h>

#include <random>

#include "jobspec/dialects/flag_table.h"
#include "tests/unit/jobspec/pasted_lines.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DialectTest : public PastedLines {};

// run_pile_singlenode.sh's call of Pax, with FPROP_DTYPE and a mesh that this version supports.
constexpr char kPile[] = R"(python3 -u -m paxml.main
    --job_log_dir=/logs/log_dir
    --fdl_config=paxml.contrib.gpu.scripts_gpu.configs.Pile126M
    --fdl.FPROP_DTYPE="float32"
    --fdl.ICI_MESH_SHAPE=[8,1,1]
    --fdl.DCN_MESH_SHAPE=[1,1,1]
    --fdl.PERCORE_BATCH_SIZE=4
    --tfds_data_dir=/opt/paxml/datasets
    --enable_checkpoint_saving=False
    --multiprocess_gpu
    --alsologtostderr)";

TEST_F(DialectTest, PaxOnThePile) {
  const auto job = pasted(kPile, 0);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.model.name, "Pile126M");
  EXPECT_EQ(job->train.model.emb_dim, 768);
  EXPECT_EQ(job->spec.ranks_per_node(), 8);
  EXPECT_EQ(job->spec.nodes(), 1);
  EXPECT_EQ(job->train.per_device_batch_size, 4);
  EXPECT_EQ(job->spec.output_directory(), "/logs/log_dir");
  EXPECT_EQ(job->train.dataset_type, trainer::DatasetType::kShards);
  EXPECT_EQ(job->train.dataset_path, "/opt/paxml/datasets");
  EXPECT_FALSE(job->train.enable_checkpointing);
  EXPECT_THAT(job->warnings, Contains(HasSubstr("--multiprocess_gpu=true has no effect")));
}

TEST_F(DialectTest, PaxScriptVariables) {
  const auto job = pasted(
      "CONFIG=Synthetic126M PREC=float32 ENABLE_TE=1 ENABLE_FP8=0 "
      "LOG_DIR_LOCAL=logs PERCORE_BATCH_SIZE=2 steps=3");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.model.name, "Synthetic126M");
  EXPECT_EQ(job->train.per_device_batch_size, 2);
  EXPECT_EQ(job->train.steps, 3);
  EXPECT_EQ(job->train.run_name, "logs");
  EXPECT_EQ(job->train.dataset_type, trainer::DatasetType::kSynthetic);
  EXPECT_FALSE(job->train.model.quantization.enabled());
  EXPECT_EQ(pasted("CONFIG=Synthetic5B ENABLE_FP8=1")->train.model.quantization.type,
            trainer::QuantizationType::kFp8Delayed);
  EXPECT_EQ(pasted("CONFIG=Synthetic5B --fdl.USE_FP8=True")->train.model.quantization.type,
            trainer::QuantizationType::kFp8Delayed);
  EXPECT_THAT(error_of(pasted("CONFIG=Synthetic5B PRECISION=float32 ENABEL_TE=1")),
              HasSubstr("unknown flag PRECISION"));
}

TEST_F(DialectTest, PaxMaySetTheRoutingGroups) {
  const auto job = pasted("--fdl_config=configs.GLaM126M64E --fdl.NUM_GROUPS=2");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.model.experts.num_groups, 2);
}

TEST_F(DialectTest, PaxMayOverrideAModelsShape) {
  const auto job = pasted(
      "--fdl_config=configs.GPT126M --fdl.NUM_LAYERS=2 --fdl.NUM_HEADS=4 --fdl.MODEL_DIMS=256 "
      "--fdl.HIDDEN_DIMS=512 --fdl.MAX_SEQ_LEN=128 --fdl.MAX_STEPS=7 --fdl.LEARNING_RATE=1e-3 "
      "--fdl.CHECKPOINT_POLICY=AutodiffCheckpointType.SAVE_NOTHING");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.model.num_layers, 2);
  EXPECT_EQ(job->train.model.num_query_heads, 4);
  EXPECT_EQ(job->train.model.num_kv_heads, 4);
  EXPECT_EQ(job->train.model.emb_dim, 256);
  EXPECT_EQ(job->train.max_target_length, 128);
  EXPECT_EQ(job->train.model.trainable_position_size, 128);
  EXPECT_EQ(job->train.steps, 7);
  EXPECT_EQ(job->train.optimizer.learning_rate, 1e-3);
  const auto llama = pasted("--fdl_config=x.LLaMA70B --fdl.NUM_HEADS=16 --fdl.MAX_SEQ_LEN=512");
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->train.model.num_kv_heads, 8);
  EXPECT_EQ(llama->train.model.trainable_position_size, 0);
}

TEST_F(DialectTest, HeadsDoNotDependOnTheOrderOfFlags) {
  for (const char* flags :
       {"--fdl.NUM_HEADS=8 --fdl.NUM_KV_HEADS=2", "--fdl.NUM_KV_HEADS=2 --fdl.NUM_HEADS=8"}) {
    const auto job = pasted(std::string("CONFIG=LLaMA7B ") + flags);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->train.model.num_kv_heads, 2) << flags;
    EXPECT_EQ(job->train.model.num_query_heads, 8) << flags;
  }
}

TEST_F(DialectTest, TheWidthOfAHeadFollowsWherePaxComputesIt) {
  EXPECT_EQ(pasted("CONFIG=GPT175B --fdl.NUM_HEADS=48")->train.model.head_dim, 256);
  EXPECT_EQ(pasted("CONFIG=Synthetic175B --fdl.MODEL_DIMS=6144")->train.model.head_dim, 64);
  EXPECT_EQ(
      pasted("CONFIG=GPT175B --fdl.NUM_HEADS=48 --fdl.DIMS_PER_HEAD=16")->train.model.head_dim, 16);
  EXPECT_EQ(pasted("CONFIG=GPT5B --fdl.NUM_HEADS=8")->train.model.head_dim, 128);
  EXPECT_THAT(error_of(pasted("CONFIG=GPT175B --fdl.NUM_HEADS=7")),
              AllOf(HasSubstr("head_dim is base_emb_dim / base_num_query_heads"),
                    HasSubstr("--fdl.NUM_HEADS"), HasSubstr("7 does not divide 12288")));
}

TEST_F(DialectTest, TheWorkspaceIsTheParentOfARelativeLogFolder) {
  const auto output = [](const std::string& text) {
    const auto job = pasted("CONFIG=Synthetic126M " + text);
    return job.ok() ? job->spec.output_directory() : std::string(job.status().message());
  };
  EXPECT_EQ(output("BASE_WORKSPACE_DIR=/w LOG_DIR_LOCAL=a/b"), "/w/a/b");
  EXPECT_EQ(output("LOG_DIR=b BASE_WORKSPACE_DIR=/w/"), "/w/b");
  EXPECT_EQ(output("BASE_WORKSPACE_DIR=/w LOG_DIR=/elsewhere/b"), "/elsewhere/b");
  EXPECT_THAT(pasted("CONFIG=Synthetic126M BASE_WORKSPACE_DIR=/w")->warnings,
              Contains(HasSubstr("BASE_WORKSPACE_DIR=/w has no effect")));
  EXPECT_THAT(pasted("CONFIG=Synthetic126M BASE_WORKSPACE_DIR=/w LOG_DIR=b")->warnings,
              ::testing::IsEmpty());
}

TEST_F(DialectTest, FoldersOfOneRun) {
  const auto output = [](const std::string& folder) {
    auto translation = translate({"CONFIG=Synthetic126M", "--job_log_dir=" + folder});
    if (!translation.ok()) return std::string(translation.status().message());
    const auto config = load_config({shipped(), translation->settings, {}, {}});
    const auto job = resolve_job(*config, options());
    return job.ok() ? job->spec.output_directory() : std::string(job.status().message());
  };
  EXPECT_EQ(output("out//"), "/somewhere/out");
  EXPECT_EQ(output("./a/../out/./x/"), "/somewhere/out/x");
  EXPECT_EQ(output("~/x"), "/home/ada/x");
  EXPECT_EQ(output("/x"), "/x");
  EXPECT_EQ(output("gs://a/b/"), "gs://a/b");
  for (const char* folder : {".", "..", "/", "~", "", "gs://a", "hdfs://a/b"})
    EXPECT_THAT(output(folder), HasSubstr("--job_log_dir=")) << folder;
  for (const char* folder : {"out/my run", "out/l\u00e4uft"})
    EXPECT_THAT(output(folder), HasSubstr("(--job_log_dir): a name has")) << folder;
}

TEST_F(DialectTest, ARepeatedFlagWarnsOnce) {
  const auto job = pasted("CONFIG=Synthetic126M --num_hosts=3 --num_hosts=4");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->warnings, ::testing::ElementsAre(HasSubstr("--num_hosts=4")));
  EXPECT_THAT(error_of(pasted("CONFIG=Synthetic126M --multiprocess_gpu=banana")),
              HasSubstr("--multiprocess_gpu=banana: expected true or false"));
}

TEST_F(DialectTest, MeshesAsPythonWritesThem) {
  const auto job =
      pasted("CONFIG=Synthetic126M --fdl.ICI_MESH_SHAPE=(2,1,1) --fdl.DCN_MESH_SHAPE=None", 0);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.ranks_per_node(), 2);
  EXPECT_EQ(job->spec.nodes(), 1);
}

TEST_F(DialectTest, PaxGlam) {
  const auto job = pasted("CONFIG=GLaM126M64E --fdl.PERCORE_BATCH_SIZE=2 --fdl.NUM_HEADS=6");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.model.name, "GLaM126M64E");
  EXPECT_EQ(job->train.per_device_batch_size, 2);
  EXPECT_EQ(job->train.model.num_kv_heads, 6);
  EXPECT_EQ(job->train.model.experts.count, 64);
  const auto scheduled = pasted("CONFIG=GLaM126M64E --fdl.LR_COS_WARMUP=100");
  ASSERT_TRUE(scheduled.ok()) << scheduled.status();
  EXPECT_EQ(scheduled->train.optimizer.warmup_steps, 100);
  EXPECT_THAT(scheduled->warnings, ::testing::Not(Contains(HasSubstr("the schedule is"))));
  // A warning for values that depend on the depth in Pax appears only if the depth changes.
  const auto of_balance = HasSubstr("give load_balance_loss_weight");
  EXPECT_THAT(job->warnings, ::testing::Not(Contains(of_balance)));
  EXPECT_THAT(pasted("CONFIG=GLaM126M64E --fdl.NUM_LAYERS=4")->warnings, Contains(of_balance));
}

TEST_F(DialectTest, OriginsNameTheFlag) {
  const auto translation = translate(words("--fdl_config=x.GPT126M --fdl.MAX_STEPS=7"));
  ASSERT_TRUE(translation.ok()) << translation.status();
  const auto config = load_config({shipped(), translation->settings, {}, {}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("steps").origin, "--fdl.MAX_STEPS");
  EXPECT_EQ(config->settings.at("model_name").origin, "--fdl_config");
  EXPECT_FALSE(load_config({shipped(), translation->settings, {}, {{"M_STEPS", "3"}}}).ok());
}

TEST_F(DialectTest, PaxOptimizerAndSchedule) {
  const auto job = pasted(
      "CONFIG=GPT126M --fdl.LEARNING_RATE=1e-4 --fdl.LR_SCHEDULE=linear_rampup_cosine_decay "
      "--fdl.LR_COS_WARMUP=10 --fdl.LR_COS_DECAY_START=20 --fdl.LR_COS_DECAY_END=400 "
      "--fdl.LR_COS_MIN_RATIO=0.2 --fdl.LR_COS_MAX=1.0 --fdl.ADAM_BETA1=0.8 --fdl.ADAM_BETA2=0.9 "
      "--fdl.ADAM_EPSILON=1e-7 --fdl.ADAM_EPSILON_ROOT=1e-12 --fdl.WEIGHT_DECAY=0.2 "
      "--fdl.ADAM_CLIP_THRESHOLD=1.5 --fdl.CLIP_GRADIENT_NORM_TO_VALUE=2");
  ASSERT_TRUE(job.ok()) << job.status();
  const trainer::OptimizerConfig& optimizer = job->train.optimizer;
  EXPECT_EQ(optimizer.type, trainer::OptimizerType::kAdamPax);
  EXPECT_EQ(optimizer.schedule, trainer::ScheduleType::kRampupCosine);
  EXPECT_EQ(optimizer.learning_rate, 1e-4);
  EXPECT_EQ(optimizer.warmup_steps, 10);
  EXPECT_EQ(optimizer.decay_start, 20);
  EXPECT_EQ(optimizer.decay_end, 400);
  EXPECT_EQ(optimizer.final_fraction, 0.2);
  EXPECT_EQ(optimizer.b1, 0.8);
  EXPECT_EQ(optimizer.b2, 0.9);
  EXPECT_EQ(optimizer.eps, 1e-7);
  EXPECT_EQ(optimizer.eps_root, 1e-12);
  EXPECT_EQ(optimizer.weight_decay, 0.2);
  EXPECT_EQ(optimizer.update_clip, 1.5);
  EXPECT_EQ(optimizer.clipping_threshold, 2);
  EXPECT_THAT(job->warnings, ::testing::IsEmpty());
}

TEST_F(DialectTest, PaxOtherSchedules) {
  const auto constant =
      pasted("CONFIG=LLaMA7B --fdl.LR_COS_WARMUP=50 --fdl.LR_SCHEDULE=\"constant\"");
  ASSERT_TRUE(constant.ok()) << constant.status();
  EXPECT_EQ(constant->train.optimizer.schedule, trainer::ScheduleType::kConstant);
  EXPECT_EQ(constant->train.optimizer.warmup_steps, 0);
  EXPECT_THAT(constant->warnings,
              Contains("--fdl.LR_COS_WARMUP=50 has no effect: the schedule is constant"));
  // LLaMA's script for fine-tuning: a cosine from Pax's defaults.
  const auto tuning =
      pasted("CONFIG=LLaMA7B --fdl.LR_COS_WARMUP=500 --fdl.LR_SCHEDULE=linear_rampup_cosine_decay");
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_EQ(tuning->train.optimizer.warmup_steps, 500);
  EXPECT_EQ(tuning->train.optimizer.decay_start, 4001);
  EXPECT_EQ(tuning->train.optimizer.decay_end, 300'000);
  // The GPT presets have their own cosine numbers; their exponential schedule has the defaults.
  const auto other = pasted(
      "CONFIG=GPT126M --fdl.LR_LRED_DECAY_END=9000 "
      "--fdl.LR_SCHEDULE=linear_rampup_exponential_decay");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->train.optimizer.schedule, trainer::ScheduleType::kRampupExponential);
  EXPECT_EQ(other->train.optimizer.warmup_steps, 4000);
  EXPECT_EQ(other->train.optimizer.decay_start, 4001);
  EXPECT_EQ(other->train.optimizer.decay_end, 9000);
}

TEST_F(DialectTest, PaxErrorsNameTheFlag) {
  const std::string base = "--fdl_config=x.GPT126M ";
  EXPECT_THAT(error_of(pasted(base + "--fdl.NUM_LAYER=2")),
              HasSubstr("did you mean --fdl.NUM_LAYERS?"));
  EXPECT_THAT(error_of(pasted(base + "--job_logdir=x")), HasSubstr("did you mean --job_log_dir?"));
  EXPECT_THAT(error_of(pasted(base + "--fdl.MAX_STEPS=many")),
              AllOf(HasSubstr("--fdl.MAX_STEPS"), HasSubstr("many"), HasSubstr("an integer")));
  EXPECT_THAT(error_of(pasted(base + "--fdl.MODEL_DTYPE=float16")),
              AllOf(HasSubstr("float16"), HasSubstr("--fdl.MODEL_DTYPE"), HasSubstr("float32")));
  EXPECT_THAT(error_of(pasted(base + "--fdl.USE_FP8=maybe")),
              AllOf(HasSubstr("--fdl.USE_FP8"), HasSubstr("True or False")));
  EXPECT_THAT(error_of(pasted(base + "--fdl.USE_LORA=perhaps")),
              AllOf(HasSubstr("--fdl.USE_LORA"), HasSubstr("True or False")));
  EXPECT_THAT(error_of(pasted(base + "--fdl.ICI_MESH_SHAPE=[8,1]")), HasSubstr("three degrees"));
  EXPECT_THAT(error_of(pasted(base + "--fdl.LR_SCHEDULE=linear_rampup_piecewise_constant")),
              AllOf(HasSubstr("piecewise"), HasSubstr("linear_rampup_cosine_decay")));
  EXPECT_THAT(error_of(pasted(base + "--fdl.LR_COS_MAX=2")), HasSubstr("expected 1"));
  EXPECT_THAT(error_of(pasted(base + "--fdl.LR_COS_WARMUP=1000 --fdl.LR_COS_DECAY_START=637")),
              AllOf(HasSubstr("learning_rate_decay_start is 637"), HasSubstr("(1000)")));
  EXPECT_THAT(error_of(pasted(base + "--mode=decode")), HasSubstr("--mode=decode"));
  EXPECT_THAT(error_of(pasted(base + "--fdl.MAX_STEPS")), HasSubstr("=VALUE"));
  EXPECT_THAT(error_of(pasted("--fdl.MAX_STEPS=2")), HasSubstr("--fdl_config="));
  EXPECT_THAT(error_of(pasted("--fdl_config=a.b.Nothing")),
              HasSubstr("--fdl_config=Nothing: no such model"));
  EXPECT_THAT(error_of(pasted(base + "word")), HasSubstr("word: expected"));
  EXPECT_THAT(error_of(pasted("CONFIG=GPT126")), HasSubstr("did you mean GPT126M?"));
}

TEST_F(DialectTest, MeshShapes) {
  const auto split = pasted("CONFIG=GPT126M --fdl.ICI_MESH_SHAPE=[1,2,4]", 0);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->mesh.to_string(), "fsdp=2 tensor=4");
  const auto sharded = pasted("CONFIG=GPT126M --fdl.ICI_MESH_SHAPE=[1,8,1]", 0);
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  EXPECT_EQ(sharded->mesh.to_string(), "fsdp=8");
  const auto nodes =
      pasted("CONFIG=GPT126M --fdl.ICI_MESH_SHAPE=[8,1,1] --fdl.DCN_MESH_SHAPE=[8,1,1]", 0);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_EQ(nodes->mesh.ranks(), 64);
  EXPECT_EQ(nodes->spec.nodes(), 8);
}

TEST_F(DialectTest, FractionsOfASequence) {
  const std::string base = "CONFIG=GPT126M --fdl.PERCORE_BATCH_SIZE=";
  EXPECT_THAT(error_of(pasted(base + "0.5", 8)),
              AllOf(HasSubstr("per_device_batch_size=0.5"), HasSubstr("8 ranks would share 4"),
                    HasSubstr("4 ranks with 1 each")));
  EXPECT_THAT(error_of(pasted(base + "0.3", 4)), HasSubstr("4 ranks would share 1.2 sequences"));
  // Two ranks of the tensor axis share a sequence.
  const auto shared = pasted(base + "0.5 --fdl.ICI_MESH_SHAPE=[4,1,2]", 0);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(shared->train.per_device_batch_size, 1);
  EXPECT_EQ(pasted(base + "2.0", 8)->train.per_device_batch_size, 2);
}

// The EKS example, as printed, with its variables filled in.
constexpr char kFuji[] = R"(python3 -m axlearn.common.launch_trainer_main
        --module=text.gpt.c4_trainer
        --config=fuji-3B-v3-flash-single-host
        --trainer_dir=/fuji/trainer
        --data_dir=gs://axlearn-public/tensorflow_datasets
        --jax_backend=gpu)";

TEST_F(DialectTest, AxlearnExample) {
  EXPECT_EQ(pasted(kFuji)->train.dataset_path, "gs://axlearn-public/tensorflow_datasets");
  std::string text = kFuji;
  text.replace(text.find("gs://"), std::string("gs://axlearn-public/tensorflow_datasets").size(),
               "FAKE");
  text.replace(text.find("=gpu"), 4, "=tpu");
  EXPECT_THAT(pasted(text, 8)->warnings, Contains(HasSubstr("hardware=tpu (--jax_backend)")));
  text.replace(text.find("=tpu"), 4, "=gpu");
  const auto job = pasted(text, 8);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.model.name, "fuji-3B-v3-flash-single-host");
  EXPECT_EQ(job->train.model.num_layers, 28);
  EXPECT_EQ(job->train.per_device_batch_size, 2);
  EXPECT_EQ(job->train.max_target_length, 8192);
  EXPECT_EQ(job->spec.output_directory(), "/fuji/trainer");
  EXPECT_EQ(job->train.dataset_type, trainer::DatasetType::kSynthetic);
  EXPECT_EQ(job->train.hardware, trainer::Hardware::kGpu);
}

TEST_F(DialectTest, AxlearnSmallestModel) {
  const auto job = pasted(
      "--module text.gpt.c4_trainer --config fuji-test --trainer_dir out/ --data_dir=FAKE "
      "--jax_backend=cpu --mesh_selector=gpu-p5.48xlarge-256 --trainer_prng_seed=5 "
      "--trainer_log_every_n_steps=10 steps=4",
      4);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.init_weights_seed, 5U);
  EXPECT_EQ(job->train.log_period, 10);
  EXPECT_EQ(job->train.per_device_batch_size, 8);
  EXPECT_EQ(job->train.steps, 4);
  EXPECT_EQ(job->spec.output_directory(), "/somewhere/out");
  EXPECT_THAT(
      job->warnings,
      Contains(HasSubstr("--mesh_selector=gpu-p5.48xlarge-256 has no effect: fuji-test has no")));
}

TEST_F(DialectTest, AxlearnErrorsNameTheFlag) {
  EXPECT_THAT(error_of(pasted("--config=fuji-test --trainer_dri=x")),
              HasSubstr("did you mean --trainer_dir?"));
  EXPECT_THAT(error_of(pasted("--config=configs/base.yml")), HasSubstr("Fuji"));
  EXPECT_THAT(error_of(pasted("--module=text.gpt.c4_trainer")), HasSubstr("--config=NAME"));
  EXPECT_THAT(error_of(pasted("--module=vision.resnet --config=fuji-test")),
              HasSubstr("text.gpt.c4_trainer"));
  EXPECT_THAT(error_of(pasted("--config=fuji-7B-v2-fp16")), HasSubstr("fuji-7B-v2-fp16"));
  EXPECT_THAT(error_of(pasted("--config=fuji-test --trainer_dir")), HasSubstr("=VALUE"));
}

TEST_F(DialectTest, SuggestionsIgnoreCase) {
  EXPECT_THAT(error_of(pasted("CONFIG=gpt126m")), HasSubstr("did you mean GPT126M?"));
  EXPECT_THAT(error_of(pasted("CONFIG=GPT126M STEPS=5")), HasSubstr("did you mean steps?"));
  EXPECT_THAT(error_of(resolve({"STEPS=5"})), HasSubstr("did you mean steps?"));
}

TEST_F(DialectTest, Recognition) {
  EXPECT_EQ(dialect_of(words("configs/base.yml steps=3")), Dialect::kMaxText);
  EXPECT_EQ(dialect_of(words("CONFIG=GPT5B")), Dialect::kPax);
  EXPECT_EQ(dialect_of(words("--config=fuji-test")), Dialect::kAxlearn);
  EXPECT_EQ(dialect_of(words("configs/base.yml --configs=x")), Dialect::kMaxText);
}

TEST_F(DialectTest, RowsAreComplete) {
  for (const auto table : {pax_flags(), pax_parameters(), pax_variables(), axlearn_flags()}) {
    for (const Flag& flag : table) {
      const bool has_key = flag.effect == FlagEffect::kKey ||
                           flag.effect == FlagEffect::kPaxCosine ||
                           flag.effect == FlagEffect::kPaxExponential;
      EXPECT_EQ(has_key, !flag.key.empty()) << flag.name;
      EXPECT_TRUE(flag.key.empty() || find_key(flag.key) != nullptr) << flag.key;
      const bool has_note = flag.effect == FlagEffect::kNoEffect || flag.effect == FlagEffect::kOff;
      EXPECT_EQ(has_note, !flag.note.empty()) << flag.name;
    }
  }
}

// A flag with a misspelt name is an error, whatever its value.
TEST_F(DialectTest, UnknownFlagsNeverPass) {
  std::mt19937 generator(20240430);
  const auto misspell = [&](std::string name) {
    name[generator() % name.size()] = static_cast<char>('a' + generator() % 26);
    return name + static_cast<char>('a' + generator() % 26);
  };
  for (int i = 0; i < 2000; ++i) {
    const bool is_pax = generator() % 2 == 0;
    const auto table = is_pax ? pax_parameters() : axlearn_flags();
    const std::string name = misspell(std::string(table[generator() % table.size()].name));
    const auto translation = is_pax ? translate({"CONFIG=GPT126M", "--fdl." + name + "=1"})
                                    : translate({"--config=fuji-test", "--" + name + "=1"});
    ASSERT_FALSE(translation.ok()) << name;
    EXPECT_THAT(std::string(translation.status().message()), HasSubstr(name));
  }
}

}  // namespace
}  // namespace muster::jobspec

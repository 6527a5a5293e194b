#include "jobspec/resolve.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>

#include "common/job/gpu.h"
#include "jobspec/resolve_step.h"
#include "tests/unit/jobspec/config_files.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Resolve : public ConfigFiles {
 protected:
  static LaunchOptions with_ranks(int32_t ranks, int32_t nodes = 1) {
    LaunchOptions launch = options();
    launch.ranks_per_node = ranks;
    launch.nodes = nodes;
    return launch;
  }
};

TEST_F(Resolve, DefaultsMakeOneRank) {
  const auto job = resolve({});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->mesh.ranks(), 1);
  EXPECT_EQ(job->train.run_name, "unnamed");
  EXPECT_EQ(job->spec.output_directory(), "/somewhere/unnamed");
  EXPECT_EQ(job->train.checkpoint_directory, "/somewhere/unnamed/checkpoints");
  EXPECT_EQ(job->spec.user(), "ada");
  EXPECT_EQ(job->spec.restarts_max(), 3);
}

TEST_F(Resolve, GpusOfARankFollowTheHardware) {
  EXPECT_EQ(resolve({})->train.hardware, trainer::Hardware::kAuto);
  EXPECT_EQ(resolve({})->spec.gpus_per_rank(), kGpusOfSlot);
  EXPECT_EQ(resolve({"hardware=cpu"})->spec.gpus_per_rank(), 0);
  EXPECT_EQ(resolve({"hardware=gpu"})->spec.gpus_per_rank(), 1);
  LaunchOptions wanted = options();
  wanted.gpus_per_rank = 0;
  EXPECT_EQ(resolve({"hardware=gpu"}, wanted)->spec.gpus_per_rank(), 0);
  wanted.gpus_per_rank.reset();
  wanted.own_workers = true;
  EXPECT_EQ(resolve({"hardware=gpu"}, wanted)->spec.gpus_per_rank(), kGpusOfSlot);
}

TEST_F(Resolve, LocalCheckpointsHaveMaxTextsKeys) {
  const auto job = resolve({"enable_emergency_checkpoint=True", "local_checkpoint_period=20",
                            "local_checkpoint_directory=/mnt/ramdisk"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->train.enable_emergency_checkpoint);
  EXPECT_EQ(job->train.local_checkpoint_period, 20);
  EXPECT_EQ(job->train.local_checkpoint_directory, "/mnt/ramdisk");
  EXPECT_THAT(error_of(resolve({"enable_emergency_checkpoint=True"})),
              HasSubstr("local_checkpoint_period is 0"));
  EXPECT_THAT(resolve({"local_checkpoint_period=20"})->warnings,
              ElementsAre(HasSubstr("local_checkpoint_period=20 has no effect")));
}

TEST_F(Resolve, ProfilesHaveMaxTextsKeys) {
  EXPECT_EQ(resolve({})->train.profile, trainer::ProfileConfig());
  const auto job = resolve({"steps=10", "profiler=nsys", "skip_first_n_steps_for_profiler=3",
                            "profiler_steps=2", "upload_all_profiler_results=True"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.profile,
            (trainer::ProfileConfig{trainer::Profiler::kNsys, 3, 2, /*all_ranks=*/true}));
  EXPECT_THAT(error_of(resolve({"profiler=xplane"})),
              AllOf(HasSubstr("profiler=xplane"), HasSubstr("profiler=nsys")));
  EXPECT_THAT(error_of(resolve({"profiler=nsys", "profiler_steps=0"})),
              HasSubstr("profiler_steps is 0"));
  EXPECT_THAT(resolve({"profiler_steps=2"})->warnings,
              ElementsAre(HasSubstr("profiler_steps has no effect: profiler is not set")));
}

TEST_F(Resolve, ActivationsAreFloat32OrBfloat16) {
  EXPECT_EQ(resolve({})->train.dtype, trainer::ComputeType::kBfloat16);
  EXPECT_EQ(resolve({"dtype=float32"})->train.dtype, trainer::ComputeType::kFloat32);
  EXPECT_EQ(resolve({"dtype=bfloat16"})->train.dtype, trainer::ComputeType::kBfloat16);
  std::vector<std::string> warnings;
  EXPECT_EQ(resolve_step({"dtype=bfloat16"}, warnings)->dtype, trainer::ComputeType::kBfloat16);
  EXPECT_THAT(error_of(resolve({"dtype=float16"})),
              AllOf(HasSubstr("dtype=float16"), HasSubstr("must be float32 or bfloat16")));
}

TEST_F(Resolve, OpenMeshAxesAreFilledIn) {
  const auto job = resolve({}, with_ranks(4, 2));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->mesh.to_string(), "data=2 fsdp=4");
  EXPECT_EQ(job->train.mesh, job->mesh.shape());
  EXPECT_EQ(job->spec.nodes(), 2);
  EXPECT_EQ(job->spec.ranks_per_node(), 4);
}

// In MaxText the number of layers is stages times layers per stage times repeats.
TEST_F(Resolve, PipelinesHaveMaxTextsKeys) {
  const auto shape = [&](std::vector<std::string> keys) {
    keys.insert(keys.end(), {"model_name=llama2-7b", "ici_pipeline_parallelism=4", "steps=1"});
    const auto job = resolve(keys, with_ranks(4));
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return std::string();
    return absl::StrCat(job->train.pipeline_repeats, " repeats, ", job->train.micro_batches(),
                        " micro-batches of ", job->train.micro_batch_sequences());
  };
  EXPECT_EQ(shape({"per_device_batch_size=2"}), "8 repeats, 4 micro-batches of 2");
  EXPECT_EQ(shape({"per_device_batch_size=2", "num_pipeline_repeats=1",
                   "num_pipeline_microbatches=2", "gradient_accumulation_steps=3"}),
            "1 repeats, 6 micro-batches of 4");
  EXPECT_EQ(shape({"per_device_batch_size=2", "num_layers_per_pipeline_stage=4"}),
            "2 repeats, 4 micro-batches of 2");
  const auto refused = [&](std::vector<std::string> keys) {
    keys.insert(keys.end(), {"model_name=llama2-7b", "steps=1", "per_device_batch_size=3"});
    return error_of(resolve(keys, with_ranks(4)));
  };
  EXPECT_THAT(refused({"ici_pipeline_parallelism=4", "num_layers_per_pipeline_stage=3"}),
              AllOf(HasSubstr("num_layers_per_pipeline_stage=3"), HasSubstr("a stage has 8 layers"),
                    HasSubstr("2 or 4 would do")));
  EXPECT_THAT(refused({"ici_pipeline_parallelism=4", "num_layers_per_pipeline_stage=4",
                       "num_pipeline_repeats=4"}),
              AllOf(HasSubstr("num_pipeline_repeats=4"),
                    HasSubstr("num_layers_per_pipeline_stage would have to be 2")));
  EXPECT_THAT(refused({"ici_pipeline_parallelism=4", "num_pipeline_microbatches=5"}),
              AllOf(HasSubstr("num_pipeline_microbatches=5"), HasSubstr("12 sequences"),
                    HasSubstr("4 or 6 would do")));
  EXPECT_THAT(refused({"ici_pipeline_parallelism=4", "num_pipeline_microbatches=6"}),
              AllOf(HasSubstr("num_pipeline_microbatches=6"), HasSubstr("8 repeats"),
                    HasSubstr("multiple of the 4 stages"), HasSubstr("num_pipeline_repeats=1")));
  EXPECT_THAT(refused({"ici_pipeline_parallelism=4", "base_num_decoder_layers=30",
                       "override_model_config=true"}),
              AllOf(HasSubstr("ici_pipeline_parallelism is 4"),
                    HasSubstr("base_num_decoder_layers is 30"), HasSubstr("as many ranks")));
  EXPECT_THAT(refused({"num_pipeline_microbatches=0"}), HasSubstr("must be at least 1, or -1"));
}

TEST_F(Resolve, RanksDefaultToTheMesh) {
  const auto job = resolve({"ici_data_parallelism=3", "dcn_data_parallelism=2"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.ranks_per_node(), 3);
  EXPECT_EQ(job->spec.nodes(), 2);
}

TEST_F(Resolve, WorldSizeThatDoesNotMatchTheMesh) {
  EXPECT_THAT(error_of(resolve({"ici_data_parallelism=3"}, with_ranks(4))),
              AllOf(HasSubstr("ici_data_parallelism=3"), HasSubstr("4 ranks")));
  EXPECT_THAT(error_of(resolve({}, with_ranks(0))), HasSubstr("0 ranks"));
  EXPECT_FALSE(resolve({}, with_ranks(100'000'000)).ok());
  EXPECT_FALSE(
      resolve({"ici_data_parallelism=2000000000", "ici_fsdp_parallelism=2000000000"}).ok());
}

TEST_F(Resolve, AnAxisOpenedByTheUserReplacesTheDefaultOne) {
  const auto mesh_of = [](absl::StatusOr<ResolvedJob> job) {
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->mesh.to_string() : "";
  };
  EXPECT_EQ(mesh_of(resolve({}, with_ranks(8))), "fsdp=8");
  EXPECT_EQ(mesh_of(resolve({"ici_data_parallelism=2"}, with_ranks(8))), "data=2 fsdp=4");
  EXPECT_EQ(mesh_of(resolve({"ici_data_parallelism=2"})), "data=2");
  EXPECT_EQ(mesh_of(resolve({"ici_data_parallelism=-1"}, with_ranks(8))), "data=8");
  EXPECT_EQ(mesh_of(resolve({"dcn_fsdp_parallelism=-1"}, with_ranks(2, 2))), "fsdp=4");
  EXPECT_EQ(mesh_of(resolve({"ici_tensor_parallelism=-1"})), "1 rank");
  EXPECT_EQ(mesh_of(resolve({"ici_tensor_parallelism=-1"}, with_ranks(4))), "tensor=4");
  EXPECT_THAT(error_of(resolve({"ici_fsdp_parallelism=-1", "ici_data_parallelism=-1"})),
              HasSubstr("both -1"));
}

// Ranks along tensor compute the same sequences, so their batches add up.
TEST_F(Resolve, BatchesOfATensorAxis) {
  const auto job = resolve(
      {"ici_tensor_parallelism=2", "per_device_batch_size=1.5", "eval_per_device_batch_size=2.5"},
      with_ranks(4));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->mesh.to_string(), "fsdp=2 tensor=2");
  EXPECT_EQ(job->train.per_device_batch_size, 3);
  EXPECT_EQ(job->train.eval.per_device_batch_size, 5);
  EXPECT_THAT(error_of(resolve({"ici_tensor_parallelism=2", "eval_per_device_batch_size=0.75"},
                               with_ranks(2))),
              HasSubstr("a whole number of sequences of 2 ranks"));
}

// 2 layers: 24 times half of the rows of 12 sequences, in fp32.
TEST_F(Resolve, ATensorAxisBetweenNodesIsAWarning) {
  std::vector<std::string> keys = {"dcn_tensor_parallelism=2",
                                   "dcn_data_parallelism=1",
                                   "per_device_batch_size=6",
                                   "max_target_length=128",
                                   "base_num_decoder_layers=2",
                                   "base_emb_dim=64",
                                   "dtype=float32"};
  const auto warning =
      HasSubstr("dcn_tensor_parallelism=2: a rank exchanges at least 4.5 MiB a step");
  const auto job = resolve(keys, with_ranks(1, 2));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->warnings, Contains(warning));
  EXPECT_EQ(job->spec.segment_nodes(), 2) << "both nodes of a tensor group share a domain";
  // Twice the sequences, and each rank has half of the positions.
  keys.emplace_back("ici_context_parallelism=2");
  const auto split = resolve(keys, with_ranks(2, 2));
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(split->warnings, Contains(warning));
}

TEST_F(Resolve, FsdpSharding) {
  EXPECT_EQ(resolve({})->train.zero_stage, 3);
  EXPECT_EQ(resolve({"zero_stage=1"})->train.zero_stage, 1);
  EXPECT_THAT(error_of(resolve({"zero_stage=4"})),
              HasSubstr("zero_stage is 4, but must be between 1 and 3"));
}

TEST_F(Resolve, CudaGraphsByDefault) {
  const auto usual = resolve({}), off = resolve({"cuda_graphs=false"});
  EXPECT_TRUE(usual->train.cuda_graphs);
  EXPECT_FALSE(off->train.cuda_graphs);
  EXPECT_FALSE(trainer::train_config_from_json(trainer::to_json(off->train))->cuda_graphs);
  EXPECT_THAT(error_of(resolve({"cuda_graph=false"})), HasSubstr("cuda_graphs"));
}

TEST_F(Resolve, SyntheticDataIgnoresADatasetPathWithAWarning) {
  const auto job = resolve({"dataset_path=/data", "dataset_type=synthetic"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->warnings, ElementsAre(HasSubstr("dataset_path=/data has no effect")));
  EXPECT_TRUE(resolve({"model_name=Synthetic126M", "dataset_path=/data"}).ok());
}

TEST_F(Resolve, DecodeKeysAreChecked) {
  for (const char* text : {"decode_sampling_strategy=beam", "decode_sampling_top_k=-1",
                           "decode_sampling_nucleus_p=2", "decode_sampling_temperature=-1"}) {
    EXPECT_THAT(error_of(resolve({text})), HasSubstr(text));
  }
}

TEST_F(Resolve, AConfigWithoutABase) {
  const auto config = load({}, {}, write("mine.yml", "steps: 3\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(error_of(resolve_job(*config, options())),
              AllOf(HasSubstr("mine.yml: vocab_size is missing"), HasSubstr("base_config")));
}

TEST_F(Resolve, BatchThatCannotBeSharded) {
  EXPECT_THAT(error_of(resolve({"per_device_batch_size=0.3"}, with_ranks(4))),
              AllOf(HasSubstr("per_device_batch_size=0.3"), HasSubstr("whole number")));
  EXPECT_FALSE(resolve({"per_device_batch_size=1.5"}).ok());
  EXPECT_FALSE(resolve({"per_device_batch_size=-2"}).ok());
  EXPECT_THAT(error_of(resolve({"per_device_batch_size=1e30"})), Not(HasSubstr("would do")));
}

TEST_F(Resolve, GlobalBatchIsSharedByTheRanks) {
  const auto job = resolve({"global_batch_size=12"}, with_ranks(4));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.per_device_batch_size, 3);
  EXPECT_THAT(error_of(resolve({"global_batch_size=10"}, with_ranks(4))),
              AllOf(HasSubstr("global_batch_size=10"), HasSubstr("multiple of the 4 ranks")));
  EXPECT_THAT(
      error_of(resolve({"global_batch_size=12", "per_device_batch_size=4"}, with_ranks(4))),
      AllOf(HasSubstr("global_batch_size=12"), HasSubstr("per_device_batch_size=4 times 4 ranks")));
  EXPECT_TRUE(resolve({"global_batch_size=12", "per_device_batch_size=3"}, with_ranks(4)).ok());
  EXPECT_FALSE(resolve({"global_batch_size=-4"}).ok());
  const auto accumulated =
      resolve({"global_batch_size=24", "gradient_accumulation_steps=3"}, with_ranks(4));
  ASSERT_TRUE(accumulated.ok()) << accumulated.status();
  EXPECT_EQ(accumulated->train.per_device_batch_size, 2);
  EXPECT_EQ(accumulated->train.gradient_accumulation_steps, 3);
  EXPECT_THAT(
      error_of(resolve({"global_batch_size=20", "gradient_accumulation_steps=3"}, with_ranks(4))),
      HasSubstr("multiple of the 4 ranks times gradient_accumulation_steps=3"));
  EXPECT_THAT(error_of(resolve({"gradient_accumulation_steps=0"})),
              HasSubstr("gradient_accumulation_steps=0: must be at least 1"));
  EXPECT_THAT(error_of(resolve({"gradient_accumulation_steps=2000000"})),
              HasSubstr("gradient_accumulation_steps is 2000000"));
  EXPECT_EQ(resolve({"model_name=fuji-test"}, with_ranks(4))->train.per_device_batch_size, 8);
  EXPECT_EQ(resolve({"model_name=fuji-test", "per_device_batch_size=2"}, with_ranks(4))
                ->train.per_device_batch_size,
            2);
  EXPECT_THAT(
      error_of(resolve({"model_name=fuji-test", "global_batch_size=32", "per_device_batch_size=5"},
                       with_ranks(4))),
      HasSubstr("per_device_batch_size=5 times 4 ranks is 20"));
}

TEST_F(Resolve, StepsAndScheduleAreInferredFromEachOther) {
  EXPECT_EQ(resolve({"steps=10"})->train.optimizer.schedule_steps, 10);
  const auto job = resolve({"steps=-1", "learning_rate_schedule_steps=20"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.steps, 20);
  EXPECT_EQ(job->spec.steps(), 20);
  EXPECT_THAT(error_of(resolve({"steps=-1"})), HasSubstr("learning_rate_schedule_steps"));
  EXPECT_THAT(error_of(resolve({"steps=0"})), HasSubstr("steps=0"));
}

TEST_F(Resolve, PathsBecomeAbsolute) {
  const auto job =
      resolve({"base_output_directory=out/", "run_name=a", "metrics_file=m.jsonl",
               "dataset_type=shards", "dataset_path=../data", "tokenizer_path=~/t.model"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.output_directory(), "/somewhere/out/a");
  EXPECT_EQ(job->train.metrics_file, "/somewhere/m.jsonl");
  EXPECT_EQ(job->train.dataset_path, "/data");
  EXPECT_EQ(job->train.tokenizer_path, "/home/ada/t.model");
}

TEST_F(Resolve, RunNames) {
  EXPECT_TRUE(resolve({"run_name=a-b_c.1"}).ok());
  for (const char* name : {"a/b", "..", ".hidden", "a b", "\xff"}) {
    EXPECT_THAT(error_of(resolve({std::string("run_name=") + name})), HasSubstr("run_name"))
        << name;
  }
}

TEST_F(Resolve, MaxTextQuickRunOfLlama7b) {
  const auto job =
      resolve({"model_name=llama2-7b", "per_device_batch_size=2", "max_target_length=4096",
               "scan_layers=true", "steps=15", "remat_policy=minimal", "use_iota_embed=true",
               "logits_dot_in_fp32=false", "enable_checkpointing=false",
               "base_output_directory=local_train", "dataset_path=local", "dataset_type=synthetic",
               "attention=dot_product", "hardware=cpu", "run_name=seed"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.model.emb_dim, 4096);
  EXPECT_EQ(job->train.per_device_batch_size, 2);
  EXPECT_EQ(job->train.remat_policy, trainer::RematPolicy::kMinimal);
  EXPECT_THAT(
      job->warnings,
      ElementsAre(HasSubstr("logits_dot_in_fp32"), HasSubstr("use_iota_embed"),
                  HasSubstr("attention"), HasSubstr("scan_layers=true"),
                  HasSubstr("dtype is float32"), HasSubstr("dataset_path=local has no effect")));
}

TEST_F(Resolve, MaxTextRunOfACompiledStep) {
  const std::vector<std::string> words = {"run_name=example_load_compile",
                                          "compiled_trainstep_file=my_compiled_train.pickle",
                                          "global_parameter_scale=16",
                                          "per_device_batch_size=4",
                                          "steps=10000",
                                          "learning_rate=1e-3"};
  const auto job = resolve(words);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.model.num_query_heads, 64);
  EXPECT_EQ(job->train.model.emb_dim, 4096);
  EXPECT_EQ(job->train.model.num_layers, 32);
  EXPECT_THAT(job->train.compiled_trainstep_file, EndsWith("/my_compiled_train.pickle"));
  EXPECT_THAT(job->warnings, IsEmpty());
  EXPECT_THAT(std::string(resolve({"compiled_trainstep_file=gs://bucket/plan"}).status().message()),
              HasSubstr("give a path of the file system; every rank reads the file"));
  std::vector<std::string> remote = words;
  remote.push_back("base_output_directory=gs://my-output-bucket");
  EXPECT_TRUE(resolve(remote).ok());
}

TEST_F(Resolve, GlobalParameterScaleCyclesThroughHeadsWidthAndLayers) {
  const auto base = resolve({})->train.model;
  const auto doubled = resolve({"global_parameter_scale=2"})->train.model;
  EXPECT_EQ(doubled.num_query_heads, 2 * base.num_query_heads);
  EXPECT_EQ(doubled.mlp_dim, 2 * base.mlp_dim);
  EXPECT_EQ(doubled.emb_dim, base.emb_dim);
  const auto eight = resolve({"global_parameter_scale=8"})->train.model;
  EXPECT_EQ(eight.num_layers, 2 * base.num_layers);
  EXPECT_FALSE(resolve({"global_parameter_scale=3"}).ok());
  EXPECT_FALSE(resolve({"global_parameter_scale=0"}).ok());
  EXPECT_FALSE(resolve({"global_parameter_scale=1073741824", "base_mlp_dim=2000000000"}).ok());
}

TEST_F(Resolve, NumbersOutOfRangeNameTheirKey) {
  EXPECT_THAT(error_of(resolve({"vocab_size=99999999999"})), HasSubstr("vocab_size=99999999999"));
  EXPECT_THAT(error_of(resolve({"init_weights_seed=-1"})), HasSubstr("init_weights_seed=-1"));
  EXPECT_THAT(error_of(resolve({"threads_per_rank=-1"})), HasSubstr("threads_per_rank is -1"));
  EXPECT_THAT(error_of(resolve({"steps=9000000000000000000"})),
              ::testing::StartsWith("steps is 9"));
  EXPECT_THAT(error_of(resolve({"sliding_window_size=-1"})), HasSubstr("sliding_window_size=-1"));
  EXPECT_THAT(error_of(resolve({"learning_rate=1e308"})), HasSubstr("must be at most 3.4"));
  EXPECT_THAT(error_of(resolve({"restarts_max=-1"})), HasSubstr("restarts_max=-1"));
  EXPECT_THAT(error_of(resolve({"base_num_kv_heads=3"})), HasSubstr("base_num_kv_heads"));
}

TEST_F(Resolve, TheSpecCarriesTheWholeConfig) {
  const auto job = resolve({"run_name=x", "steps=3"});
  ASSERT_TRUE(job.ok()) << job.status();
  const auto back =
      trainer::train_config_from_json(nlohmann::json::parse(job->spec.train_config_json()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, job->train);
}

}  // namespace
}  // namespace muster::jobspec

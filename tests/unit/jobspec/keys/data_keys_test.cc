#include "jobspec/keys/data_keys.h"

#include <gmock/gmock.h>

#include <filesystem>

#include <absl/strings/str_cat.h>

#include "jobspec/resolve.h"
#include "tests/unit/jobspec/config_files.h"
#include "tests/unit/temp_folder.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataKeys : public ConfigFiles {
 protected:
  absl::StatusOr<ResolvedJob> on_shards(std::vector<std::string> settings) {
    settings.insert(settings.begin(), {"dataset_type=shards", "dataset_path=data"});
    return resolve(settings);
  }
};

TEST_F(DataKeys, EveryFolderOfABlendBecomesAbsolute) {
  const auto job = resolve({"dataset_type=shards", "dataset_path=../a,0.7;~/b,3"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.dataset_path, "/a,0.69999999999999996;/home/ada/b,3");
  for (const char* path : {"a;b,1", "a,0;b,1", "a,nan;b,1", "a,-1;b,1"})
    EXPECT_THAT(error_of(resolve({"dataset_type=shards", std::string("dataset_path=") + path})),
                AllOf(HasSubstr("dataset_path="), HasSubstr("a")));
  EXPECT_EQ(resolve({"dataset_type=shards", "dataset_path=a,1;gs://b/c/,1"})->train.dataset_path,
            "/somewhere/a,1;gs://b/c,1");
  EXPECT_THAT(error_of(resolve({"dataset_type=shards", "dataset_path=a,1;hdfs://b,1"})),
              HasSubstr("only s3:// and gs:// addresses"));
}

TEST_F(DataKeys, ADataSetWithoutATypeIsC4AsInMaxText) {
  const auto job = resolve({"dataset_path=gs://my-dataset-bucket"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.dataset_type, trainer::DatasetType::kShards);
  EXPECT_EQ(job->train.dataset_path, "gs://my-dataset-bucket");
  ASSERT_TRUE(job->texts.train);
  EXPECT_EQ(job->texts.train->dataset, "c4/en:3.0.1");
  EXPECT_EQ(resolve({"dataset_path=text.txt"})->texts.train->sources[0].folder,
            "/somewhere/text.txt");
  // A type that is stated, or that a model's file states, counts.
  EXPECT_FALSE(resolve({"dataset_path=local", "dataset_type=synthetic"})->texts.train);
  const auto synthetic = resolve({"model_name=Synthetic126M", "dataset_path=local"});
  ASSERT_TRUE(synthetic.ok()) << synthetic.status();
  EXPECT_THAT(synthetic->warnings,
              Contains(HasSubstr("dataset_path=local has no effect: dataset_type is synthetic")));
  EXPECT_FALSE(resolve({})->texts.train);
  EXPECT_FALSE(resolve({"dataset_path="})->texts.train);
}

TEST_F(DataKeys, PathsMayBeInObjectStores) {
  const auto job = resolve({"base_output_directory=gs://bucket/x/", "run_name=a",
                            "dataset_type=shards", "dataset_path=s3://data/c4",
                            "load_parameters_path=s3://models/llama", "enable_tensorboard=true"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.output_directory(), "gs://bucket/x/a");
  EXPECT_EQ(job->train.checkpoint_directory, "gs://bucket/x/a/checkpoints");
  EXPECT_EQ(job->train.tensorboard_dir, "gs://bucket/x/a/tensorboard");
  EXPECT_EQ(job->train.dataset_path, "s3://data/c4");
  EXPECT_EQ(job->train.load_parameters_path, "s3://models/llama");
  for (const char* url : {"hdfs://host/x", "s3://", "gs://bucket/a//b", "http://host/x"}) {
    EXPECT_THAT(error_of(resolve({absl::StrCat("base_output_directory=", url)})),
                AllOf(HasSubstr("base_output_directory"), HasSubstr(url)));
  }
  EXPECT_THAT(error_of(resolve({"metrics_file=s3://bucket/m.jsonl"})),
              AllOf(HasSubstr("metrics_file"), HasSubstr("give a path of the file system")));
}

TEST_F(DataKeys, FineTuningNeedsShards) {
  const auto job = on_shards({"use_sft=True", "sft_long_samples=drop", "sft_loss_average=samples",
                              "sft_train_on_completion_only=False"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.sft, (trainer::SftConfig{true, false, trainer::LongSamples::kDrop,
                                                trainer::LossAverage::kSamples}));
  EXPECT_TRUE(on_shards({"use_sft=True"})->train.sft.completion_only);
  EXPECT_THAT(error_of(resolve({"use_sft=True"})),
              HasSubstr("needs dataset_type=shards and a folder that muster tokenize --sft made"));
  EXPECT_THAT(error_of(on_shards({"use_sft=True", "sft_long_samples=cut"})),
              AllOf(HasSubstr("sft_long_samples"), HasSubstr("truncate"), HasSubstr("drop")));
  const auto without = on_shards({"sft_long_samples=drop"});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->train.sft, trainer::SftConfig{});
  EXPECT_THAT(without->warnings,
              testing::Contains(HasSubstr("sft_long_samples has no effect: use_sft is not True")));
}

TEST_F(DataKeys, AnEvaluationHasNoStepsAndNoCheckpoints) {
  const auto job = on_shards({"eval_only=true", "eval_dataset_path=held", "run_name=first",
                              "steps=100", "eval_start_step=50", "target_eval_loss=9"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.steps, 0);
  EXPECT_FALSE(job->train.enable_checkpointing);
  EXPECT_EQ(job->train.eval.interval, 1);
  EXPECT_EQ(job->train.eval.start_step, 0);
  EXPECT_EQ(job->train.eval.target_loss, 0);
  EXPECT_EQ(job->train.load_parameters_path, "/somewhere/first/checkpoints");
  // Parameters that the user names are evaluated instead of the run's, which may have no name.
  const auto other =
      on_shards({"eval_only=true", "eval_holdout_fraction=0.1", "load_parameters_path=/models/m2"});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->train.load_parameters_path, "/models/m2");
  EXPECT_GT(on_shards({"eval_only=false"})->train.steps, 0);
}

TEST_F(DataKeys, AnEvaluationOfAdaptersKeepsTheirBase) {
  const TempFolder folder;
  const std::string checkpoints = folder.file("a/checkpoints");
  std::filesystem::create_directories(checkpoints);
  const auto evaluate = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"eval_only=true", "eval_dataset_path=held", "enable_lora=true",
                               "run_name=a", "base_output_directory=" + folder.path()});
    const auto job = on_shards(words);
    EXPECT_TRUE(job.ok()) << job.status();
    return job->train;
  };
  const trainer::TrainConfig with_base = evaluate({"load_parameters_path=/base"});
  EXPECT_TRUE(with_base.model.lora.enabled());
  EXPECT_EQ(with_base.load_parameters_path, "/base");
  EXPECT_EQ(with_base.lora_restore_path, checkpoints);
  const trainer::TrainConfig other =
      evaluate({"load_parameters_path=/base", "lora_restore_path=/adapters"});
  EXPECT_EQ(other.lora_restore_path, "/adapters");
  const auto none = on_shards({"eval_only=true", "eval_dataset_path=held", "enable_lora=true",
                               "run_name=b", "load_parameters_path=/base"});
  EXPECT_THAT(error_of(none), HasSubstr("evaluates adapters (enable_lora=True), but there are "
                                        "none in "));
  // The checkpoint names its base.
  const trainer::TrainConfig merged = evaluate({});
  EXPECT_FALSE(merged.model.lora.enabled());
  EXPECT_EQ(merged.load_parameters_path, checkpoints);
}

TEST_F(DataKeys, AnEvaluationNeedsDataAndACheckpoint) {
  EXPECT_THAT(error_of(resolve({"eval_only=true", "run_name=a"})),
              AllOf(HasSubstr("eval_only=true"), HasSubstr("eval_dataset_path=FOLDER2")));
  EXPECT_THAT(error_of(on_shards({"eval_only=true", "run_name=a"})),
              HasSubstr("set eval_dataset_path=FOLDER, or eval_holdout_fraction"));
  EXPECT_THAT(error_of(on_shards({"eval_only=true", "eval_dataset_path=held"})),
              HasSubstr("names no checkpoint; set run_name"));
  EXPECT_THAT(error_of(resolve({"steps=0"})), HasSubstr("eval_only=true evaluates a checkpoint"));
  const auto text = resolve({"eval_only=true", "run_name=a", "dataset_type=c4", "dataset_path=x"});
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_TRUE(text->texts.eval);
  EXPECT_TRUE(text->texts.eval->is_stated);
  const auto files = resolve({"eval_only=true", "run_name=a", "dataset_type=hf",
                              "hf_eval_files=/d/lambada_test_en.jsonl", "hf_eval_split=train"});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->texts.eval->sources[0].folder, "/d/lambada_test_en.jsonl");
  EXPECT_EQ(files->texts.eval->split, "train");
}

TEST_F(DataKeys, EpochsAreOfOneDataSet) {
  EXPECT_EQ(resolve({})->train.num_epoch, -1);
  EXPECT_EQ(on_shards({"num_epoch=2"})->train.num_epoch, 2);
  EXPECT_THAT(error_of(on_shards({"num_epoch=0"})), HasSubstr("num_epoch is 0"));
  EXPECT_THAT(error_of(on_shards({"num_epoch=2", "dataset_path=a,1;b,1"})),
              HasSubstr("several data sets end at different times"));
  EXPECT_THAT(error_of(resolve({"num_epoch=2"})), HasSubstr("has no end"));
  const auto maxtexts = resolve({"num_epoch=1"});
  ASSERT_TRUE(maxtexts.ok()) << maxtexts.status();
  EXPECT_EQ(maxtexts->train.num_epoch, -1);
  EXPECT_THAT(maxtexts->warnings, Contains(HasSubstr("num_epoch=1 has no effect")));
}

TEST_F(DataKeys, PackingAndTheExampleBatch) {
  const auto usual = on_shards({});
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_TRUE(usual->train.packing && usual->train.packed() && !usual->train.reuse_example_batch);
  EXPECT_FALSE(on_shards({"packing=False"})->train.packed());
  EXPECT_FALSE(resolve({})->train.packed()) << "of synthetic data";
  EXPECT_TRUE(on_shards({"reuse_example_batch=1"})->train.reuse_example_batch);
}

TEST_F(DataKeys, EvaluationUsesTheTrainingBatchByDefault) {
  const auto job = on_shards({"eval_interval=50", "eval_holdout_fraction=0.01", "eval_steps=7",
                              "per_device_batch_size=3", "target_eval_loss=2.5"});
  ASSERT_TRUE(job.ok()) << job.status();
  const trainer::EvalConfig& eval = job->train.eval;
  EXPECT_EQ(eval.interval, 50);
  EXPECT_EQ(eval.steps, 7);
  EXPECT_EQ(eval.per_device_batch_size, 3);
  EXPECT_EQ(eval.holdout_fraction, 0.01);
  EXPECT_EQ(eval.target_loss, 2.5);
  const auto other =
      on_shards({"eval_interval=50", "eval_dataset_path=held", "eval_per_device_batch_size=16"});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->train.eval.per_device_batch_size, 16);
  EXPECT_EQ(other->train.eval.dataset_path, "/somewhere/held");
}

TEST_F(DataKeys, TasksWithoutAnIntervalAreEvaluatedAfterTheLastStep) {
  const std::vector<std::string> tasks = {"eval_tasks=boolq=dev.jsonl", "tokenizer_path=t.model",
                                          "steps=70"};
  const auto with = [&](const std::string& more) {
    std::vector<std::string> words = tasks;
    words.push_back(more);
    return on_shards(words);
  };
  const auto eval_of = [&](const std::string& more) {
    const auto job = with(more);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? std::pair(job->train.eval.interval, job->train.eval.at_end)
                    : std::pair(int64_t{-2}, false);
  };
  EXPECT_EQ(eval_of("eval_holdout_fraction=0.1"), std::pair(int64_t{-1}, true));
  EXPECT_EQ(eval_of("eval_interval=5"), std::pair(int64_t{5}, false));
  EXPECT_EQ(eval_of("eval_interval=-1"), std::pair(int64_t{-1}, false));
  EXPECT_THAT(error_of(with("early_stopping_patience=2")),
              HasSubstr("early_stopping_patience=2 needs evaluations during the training"));
  const auto text = resolve({"dataset_type=c4", "dataset_path=tfds", tasks[0], tasks[1]});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_FALSE(text->texts.eval) << "tokenizes a split that is not evaluated";
}

TEST_F(DataKeys, ImpossibleEvaluationsAreReported) {
  // As pasted from MaxText, whose split does not exist here.
  const auto job = on_shards({"eval_interval=50"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->train.eval.enabled());
  EXPECT_THAT(
      job->warnings,
      ElementsAre(HasSubstr("eval_interval=50 has no effect: there is nothing to evaluate")));
  const auto unread = on_shards({"eval_dataset_path=held", "target_eval_loss=2"});
  ASSERT_TRUE(unread.ok()) << unread.status();
  EXPECT_THAT(unread->warnings, ElementsAre(HasSubstr("eval_dataset_path has no effect"),
                                            HasSubstr("target_eval_loss has no effect")));
  const auto metric = on_shards(
      {"eval_holdout_fraction=0.1", "eval_interval=5", "metric_for_best_model=lambada/acc"});
  ASSERT_TRUE(metric.ok()) << metric.status();
  EXPECT_THAT(metric->warnings, ElementsAre(HasSubstr("metric_for_best_model has no effect")));
  EXPECT_THAT(error_of(on_shards({"eval_holdout_fraction=1"})), HasSubstr("in [0, 1)"));
  EXPECT_THAT(error_of(on_shards({"eval_holdout_fraction=0.1", "eval_dataset_path=b"})),
              HasSubstr("both set"));
  EXPECT_THAT(error_of(resolve({"eval_holdout_fraction=0.1"})), HasSubstr("dataset_type=shards"));
  EXPECT_THAT(error_of(on_shards({"eval_per_device_batch_size=0.5"})),
              HasSubstr("a whole number of sequences"));
  EXPECT_THAT(error_of(on_shards({"eval_interval=5", "eval_dataset_path=b", "eval_steps=0"})),
              HasSubstr("eval_steps is 0"));
}

TEST_F(DataKeys, TextIsTokenizedBeforeTheJob) {
  const auto tfds = resolve({"dataset_type=c4", "dataset_path=tfds", "eval_interval=10"});
  ASSERT_TRUE(tfds.ok()) << tfds.status();
  EXPECT_EQ(tfds->train.dataset_type, trainer::DatasetType::kShards);
  ASSERT_TRUE(tfds->texts.train && tfds->texts.eval);
  EXPECT_EQ(tfds->texts.train->sources[0].folder, "/somewhere/tfds");
  EXPECT_EQ(tfds->texts.train->dataset, "c4/en:3.0.1");
  EXPECT_FALSE(tfds->texts.train->is_dataset_stated);
  EXPECT_EQ(tfds->texts.train->split, "train");
  EXPECT_EQ(tfds->texts.eval->split, "validation");
  EXPECT_TRUE(tfds->texts.eval->is_stated);
  EXPECT_FALSE(resolve({"dataset_type=c4", "dataset_path=tfds"})->texts.eval);
  EXPECT_FALSE(resolve({"dataset_type=c4", "dataset_path=tfds", "eval_interval=10",
                        "eval_holdout_fraction=0.1"})
                   ->texts.eval);

  const auto hf =
      resolve({"dataset_type=hf", "hf_train_files=/d/*.parquet", "hf_eval_files=/e/*.parquet",
               "eval_interval=5", "train_data_columns=['content']"});
  ASSERT_TRUE(hf.ok()) << hf.status();
  EXPECT_EQ(hf->texts.train->sources[0].folder, "/d/*.parquet");
  EXPECT_EQ(hf->texts.train->field, "content");
  EXPECT_EQ(hf->texts.eval->sources[0].folder, "/e/*.parquet");
  EXPECT_EQ(resolve({"dataset_type=hf", "hf_path=allenai/c4", "hf_data_dir=en", "dataset_path=c4"})
                ->texts.train->sources[0]
                .folder,
            "/somewhere/c4/en");
  LaunchOptions here = options();
  here.working_directory = folder_.string();
  std::filesystem::create_directory(folder_ / "c4");
  std::filesystem::create_directory(folder_ / "json");
  const auto folder_of = [&](std::vector<std::string> settings) {
    settings.insert(settings.begin(), "dataset_type=hf");
    const auto job = resolve(settings, here);
    return job.ok() ? job->texts.train->sources[0].folder : std::string(job.status().message());
  };
  EXPECT_EQ(folder_of({"hf_path=c4"}), here.working_directory + "/c4");
  EXPECT_EQ(folder_of({"hf_path=c4", "dataset_path=other"}), here.working_directory + "/other");
  EXPECT_EQ(folder_of({"hf_path=./c4", "dataset_path=other"}), here.working_directory + "/c4");
  EXPECT_THAT(folder_of({"hf_path=c5"}), HasSubstr("hf download c5"));
  EXPECT_THAT(folder_of({"hf_path=json"}), HasSubstr("hf download json"));
  const auto blend = resolve({"dataset_type=grain", "grain_train_files=a,0.7;b,0.3"});
  ASSERT_TRUE(blend.ok()) << blend.status();
  EXPECT_EQ(blend->texts.train->sources.size(), 2U);
  EXPECT_FALSE(on_shards({})->texts.train);
}

TEST_F(DataKeys, MissingTextGivesAdvice) {
  EXPECT_THAT(error_of(resolve({"dataset_type=tfds"})),
              AllOf(HasSubstr("dataset_type=tfds"), HasSubstr("set dataset_path=FOLDER")));
  EXPECT_THAT(error_of(resolve({"dataset_type=hf", "hf_path=allenai/c4"})),
              HasSubstr("hf download allenai/c4 --repo-type dataset"));
  EXPECT_THAT(on_shards({"dataset_name=the_pile"})->warnings,
              Contains(HasSubstr("dataset_name=the_pile has no effect: dataset_type is shards")));
  EXPECT_TRUE(on_shards({"dataset_name=c4/en:3.0.1"})->warnings.empty());
}

}  // namespace
}  // namespace muster::jobspec

// Every shipped preset with its exact number of parameters. The figures are published ones (Llama,
// Mistral, Gemma) or computed by hand from the sizes in the files.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "common/text/with_commas.h"
#include "tests/paths.h"
#include "tests/unit/jobspec/config_files.h"
#include "trainer_core/model/param_spec.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class Presets : public ConfigFiles {
 protected:
  static std::filesystem::path folder() { return source_dir() + "/configs/models"; }
};

struct Row {
  const char* name;
  int64_t parameters;
};

constexpr Row kRows[] = {
    {"llama2-tiny", 4'999'424},
    {"llama2-7b", 6'738'415'616},
    {"llama2-13b", 13'015'864'320},
    {"llama2-70b", 68'976'648'192},
    {"mistral-7b", 7'241'732'096},
    {"mixtral-8x7b", 46'702'792'704},
    {"gemma-2b", 2'506'172'416},
    {"gemma-7b", 8'537'680'896},
    {"llama3-8b", 8'030'261'248},
    {"llama3-70b", 70'553'706'496},
    {"llama3.1-8b", 8'030'261'248},
    {"llama3.1-70b", 70'553'706'496},
    {"gpt3-52k", 52'464},
    {"gpt3-6b", 5'588'736'000},
    {"gpt3-22b", 22'049'107'968},
    {"gpt3-175b", 174'780'997'632},
    {"GPT126M", 125'262'336},
    {"Pile126M", 125'262'336},
    {"Synthetic126M", 125'262'336},
    {"GPT5B", 5'047'558'144},
    {"Pile5B", 5'047'558'144},
    {"Synthetic5B", 5'047'558'144},
    {"GPT175B", 174'604'259'328},
    {"Pile175B", 174'604'259'328},
    {"Synthetic175B", 174'604'259'328},
    {"GLaM126M64E", 1'921'670'400},
    {"PileGLaM126M64E", 1'921'670'400},
    {"GLaM64B64E", 1'142'891'356'160},
    {"PileGLaM64B64E", 1'142'891'356'160},
    {"LLaMA7B", 6'738'415'616},
    {"LLaMA13B", 13'015'864'320},
    {"LLaMA70B", 68'976'648'192},
    {"fuji-test", 4'168},
    {"fuji-1B-v3", 1'241'581'568},
    {"fuji-1B-v3-tiktoken", 1'235'814'400},
    {"fuji-3B-v3", 3'221'400'576},
    {"fuji-3B-v3-tiktoken", 3'212'749'824},
    {"fuji-7B-v1", 6'610'489'344},
    {"fuji-7B-v2", 6'610'489'344},
    {"fuji-7B-v3", 6'207'836'160},
    {"fuji-8B-v3-tiktoken", 8'030'261'248},
    {"fuji-70B-v1", 78'384'472'064},
    {"fuji-70B-v2", 68'989'231'104},
    {"fuji-70B-v3", 70'599'843'840},
    {"fuji-70B-v3-tiktoken", 70'553'706'496},
};

TEST_F(Presets, HaveExactlyTheseParameters) {
  for (const Row& row : kRows) {
    const auto job = resolve({std::string("model_name=") + row.name});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(trainer::parameter_count(trainer::model_params(job->train.model)), row.parameters)
        << row.name;
    EXPECT_EQ(job->train.model.name, row.name);
  }
}

TEST_F(Presets, AreAllInTheTable) {
  std::set<std::string> rows;
  for (const Row& row : kRows) rows.insert(row.name);
  for (const auto& file : std::filesystem::directory_iterator(folder())) {
    if (!file.is_regular_file()) continue;
    EXPECT_TRUE(rows.count(file.path().stem().string()) > 0) << file.path();
  }
}

TEST_F(Presets, FilesStateTheirParameters) {
  for (const Row& row : kRows) {
    const std::string digits = with_commas(row.parameters);
    const auto path = folder() / (std::string(row.name) + ".yml");
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const bool inherits = text.find("base_config: \"parts/") == std::string::npos &&
                          text.find("base_config: \"") != std::string::npos;
    EXPECT_TRUE(inherits || text.find(digits) != std::string::npos) << path << " " << digits;
  }
}

TEST_F(Presets, GlobalParameterScaleOfTheDefaultModel) {
  const auto count = [](const char* scale, const char* block = "llama2") {
    const auto job = resolve(
        {std::string("global_parameter_scale=") + scale, std::string("decoder_block=") + block});
    return job.ok() ? trainer::parameter_count(trainer::model_params(job->train.model)) : -1;
  };
  EXPECT_EQ(count("1"), 1'104'218'112);
  EXPECT_EQ(count("8"), 8'047'038'464);
  // One norm less in each layer: 16 of 2048, 32 of 4096.
  EXPECT_EQ(count("1", "default"), 1'104'185'344);
  EXPECT_EQ(count("8", "default"), 8'046'907'392);
}

TEST_F(Presets, FujiNamesCarrySuffixes) {
  const auto whole = resolve({"model_name=fuji-7B-v2-flash"});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->train.per_device_batch_size, 1024);
  EXPECT_EQ(whole->train.model.name, "fuji-7B-v2-flash");
  const auto part = resolve({"model_name=fuji-7B-v2-flash-single-host"});
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->train.per_device_batch_size, 8);
  EXPECT_EQ(resolve({"model_name=fuji-7B-v3-single-host"})->train.per_device_batch_size, 16);
  EXPECT_EQ(resolve({"model_name=fuji-3B-v3-flash-single-host"})->train.per_device_batch_size, 16);
}

TEST_F(Presets, FujiNamesWithFp8HaveAxlearnsScaling) {
  using trainer::QuantizationType;
  const trainer::QuantizationConfig axlearns{.type = QuantizationType::kFp8Delayed,
                                             .amax_history_length = 128};
  for (const Row& row : kRows) {
    if (std::string_view(row.name).substr(0, 5) != "fuji-") continue;
    for (const char* suffix : {"-fp8", "-flash-fp8"}) {
      const auto job = resolve({std::string("model_name=") + row.name + suffix});
      ASSERT_TRUE(job.ok()) << job.status();
      EXPECT_EQ(job->train.model.quantization, axlearns) << row.name;
      const auto plain = resolve({std::string("model_name=") + row.name});
      EXPECT_EQ(job->warnings.size(), plain->warnings.size()) << row.name;
    }
  }
  const auto part = resolve({"model_name=fuji-7B-v2-flash-fp8-single-host"});
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->train.model.quantization, axlearns);
  EXPECT_EQ(part->train.per_device_batch_size, 8);
  EXPECT_EQ(part->train.model.name, "fuji-7B-v2-flash-fp8-single-host");
  EXPECT_EQ(resolve({"model_name=fuji-7B-v2-fp8", "fp8_amax_history_length=64"})
                ->train.model.quantization.amax_history_length,
            64);
  EXPECT_FALSE(
      resolve({"model_name=fuji-7B-v2-fp8", "quantization="})->train.model.quantization.enabled());
  EXPECT_FALSE(resolve({"model_name=fuji-7B-v2"})->train.model.quantization.enabled());
}

TEST_F(Presets, UnsupportedNamesHaveAReason) {
  EXPECT_THAT(error_of(resolve({"model_name=LambadaGLaM126M64E"})), HasSubstr("evaluates"));
  EXPECT_THAT(error_of(resolve({"model_name=fuji-70B-v2-single-host"})), HasSubstr("7B and 8B"));
  EXPECT_THAT(error_of(resolve({"model_name=fuji-7B-v4"})),
              AllOf(HasSubstr("no such model"), HasSubstr("fuji-7B-v")));
  EXPECT_THAT(error_of(resolve({"model_name=fuji-7B-v2-flash-flash"})), HasSubstr("no such model"));
  EXPECT_THAT(error_of(resolve({"model_name=parts/fuji"})), HasSubstr("no such model"));
}

// Du et al., 2022, as Pax configures it.
TEST_F(Presets, Glam) {
  const auto small = resolve({"model_name=GLaM126M64E"}),
             large = resolve({"model_name=GLaM64B64E"});
  ASSERT_TRUE(small.ok() && large.ok()) << small.status() << large.status();
  EXPECT_THAT(small->warnings, ::testing::ElementsAre(HasSubstr("initial weights of MLPs")));
  for (const auto& [job, layers] : {std::pair(&*small, 12), {&*large, 64}}) {
    const trainer::ModelConfig& model = job->train.model;
    EXPECT_EQ(model.position_type, trainer::PositionType::kRelative);
    EXPECT_EQ(model.relative_buckets, (trainer::RelativeBuckets{32, 128}));
    EXPECT_TRUE(model.attention_extra_zero && model.logits_via_embedding && model.gated_mlp);
    EXPECT_EQ(model.query_scale, 1);
    EXPECT_EQ(model.embedding_init_std, 1);
    EXPECT_EQ(model.logits_scale, 1 / std::sqrt(double{1} * model.emb_dim));
    EXPECT_EQ(model.activation, trainer::Activation::kGelu);
    EXPECT_EQ(model.norm_epsilon, 1e-6);
    const trainer::ExpertConfig& experts = model.experts;
    EXPECT_EQ(experts, (trainer::ExpertConfig{.count = 64,
                                              .per_token = 2,
                                              .mlp_dim = model.mlp_dim,
                                              .layer_step = 2,
                                              .activation = trainer::Activation::kRelu,
                                              .gated = false,
                                              .router = trainer::RouterStyle::kPax,
                                              .capacity_factor = 2,
                                              .balance_weight = 0.01 / (layers / 2)}));
    EXPECT_TRUE(experts.in_layer(0) && !experts.in_layer(layers - 1));
    EXPECT_EQ(job->train.optimizer.type, trainer::OptimizerType::kAdamPax);
    EXPECT_EQ(job->train.optimizer.b1, 0.9);  // 64B has 0
  }
  EXPECT_EQ(small->train.model.experts.capacity(4 * 2048), 256);
  EXPECT_EQ(small->train.optimizer.b2, 0.95);
  EXPECT_EQ(large->train.optimizer.b2, 0.99);
  EXPECT_EQ(large->train.optimizer.decay_end, 162'900);
  EXPECT_EQ(large->train.max_target_length, 2048);
}

TEST_F(Presets, RunSettingsAreDefaults) {
  const auto preset = resolve({"model_name=GPT126M"});
  ASSERT_TRUE(preset.ok()) << preset.status();
  EXPECT_EQ(preset->train.steps, 600'000);
  EXPECT_EQ(preset->train.per_device_batch_size, 4);
  EXPECT_EQ(preset->train.optimizer.learning_rate, 6e-4);
  EXPECT_EQ(preset->train.model.init_std, 0.023);
  EXPECT_THAT(preset->warnings, ::testing::IsEmpty());
  const auto mine = resolve({"model_name=GPT126M", "steps=3", "learning_rate=1e-3",
                             "per_device_batch_size=2", "max_target_length=64"});
  ASSERT_TRUE(mine.ok()) << mine.status();
  EXPECT_EQ(mine->train.steps, 3);
  EXPECT_EQ(mine->train.per_device_batch_size, 2);
  EXPECT_EQ(mine->train.max_target_length, 64);
  EXPECT_EQ(resolve({"model_name=Synthetic5B"})->train.optimizer.learning_rate, 1.6e-4);
}

TEST_F(Presets, PilePresetsNameTheirData) {
  const auto of_pile = Contains(HasSubstr("Pax reads the Pile by TFDS"));
  for (const char* name : {"Pile126M", "GPT5B", "Pile5B", "GPT175B", "Pile175B", "PileGLaM64B64E"})
    EXPECT_THAT(resolve({std::string("model_name=") + name})->warnings, of_pile) << name;
  for (const char* name : {"GPT126M", "Synthetic126M", "Synthetic5B", "Synthetic175B"})
    EXPECT_THAT(resolve({std::string("model_name=") + name})->warnings, Not(of_pile)) << name;
}

TEST_F(Presets, AnInapplicableLeftOutSentenceIsOmitted) {
  const auto of_decay = Contains(HasSubstr("AXLearn does not multiply the weight decay"));
  EXPECT_THAT(resolve({"model_name=fuji-test"})->warnings, of_decay);
  EXPECT_THAT(resolve({"model_name=fuji-test", "weight_decay_times_learning_rate=false"})->warnings,
              Not(of_decay));
}

TEST_F(Presets, FollowsNamesKnownKeys) {
  const std::string base = write("base.yml", "");
  write("models/a.yml", "follows: {head_dim: no_such_key}\n");
  EXPECT_THAT(error_of(load({"model_name=a"}, {}, base)), HasSubstr("follows: head_dim"));
}

TEST_F(Presets, FujiSchedulesWarmUpFor2000Steps) {
  for (const char* name : {"fuji-test", "fuji-7B-v1", "fuji-70B-v1", "fuji-70B-v2", "fuji-1B-v3"}) {
    const auto job = resolve({std::string("model_name=") + name});
    ASSERT_TRUE(job.ok()) << job.status();
    const trainer::OptimizerConfig& optimizer = job->train.optimizer;
    EXPECT_EQ(optimizer.warmup_steps, 2000) << name;
    EXPECT_EQ(optimizer.schedule_steps, job->train.steps) << name;
  }
}

TEST_F(Presets, ModelFilesBuildOnOthers) {
  write("base.yml", "base_emb_dim: 8\n");
  write("models/parts/wide.yml", "base_emb_dim: 64\nbase_mlp_dim: 1\nleft_out: [no wings]\n");
  write("models/parts/tall.yml", "base_mlp_dim: 2\nbase_num_decoder_layers: 9\n");
  write("models/bird.yml",
        "base_config: [parts/wide.yml, parts/tall.yml]\nbase_num_decoder_layers: 3\n");
  const auto config = load({"model_name=bird"}, {}, (folder_ / "base.yml").string());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->settings.at("base_emb_dim").value, 64);
  EXPECT_EQ(config->settings.at("base_mlp_dim").value, 2);
  EXPECT_EQ(config->settings.at("base_num_decoder_layers").value, 3);
  EXPECT_THAT(config->settings.at("base_emb_dim").origin, HasSubstr("wide.yml:1"));
  EXPECT_THAT(config->warnings, ::testing::ElementsAre("model bird: no wings"));
}

TEST_F(Presets, ModelFileCycle) {
  write("base.yml", "");
  write("models/a.yml", "base_config: b.yml\n");
  write("models/b.yml", "base_config: a.yml\n");
  EXPECT_THAT(error_of(load({"model_name=a"}, {}, (folder_ / "base.yml").string())),
              HasSubstr("cycle"));
}

TEST_F(Presets, AModelThatContradictsItself) {
  write("base.yml", "decoder_block: llama2\n");
  const std::string base = (folder_ / "base.yml").string();
  write("models/odd.yml", "base_emb_dim: 256\nbase_num_query_heads: 8\nhead_dim: 16\n");
  EXPECT_THAT(error_of(load({"model_name=odd"}, {}, base)),
              AllOf(HasSubstr("base_num_query_heads (8) times head_dim (16) is 128"),
                    HasSubstr("base_emb_dim is 256"), HasSubstr("odd.yml:1")));
  EXPECT_TRUE(load({"model_name=odd", "override_model_config=true"}, {}, base).ok());
  EXPECT_THAT(error_of(resolve({"base_num_query_heads=8", "base_num_kv_heads=3"})),
              HasSubstr("base_num_kv_heads (3) must divide base_num_query_heads (8)"));
}

}  // namespace
}  // namespace muster::jobspec

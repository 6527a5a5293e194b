#include "jobspec/keys/lora_keys.h"

#include <gmock/gmock.h>

#include "jobspec/resolve.h"
#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trainer::LoraConfig;

class LoraKeys : public ConfigFiles {
 protected:
  static LoraConfig lora(std::vector<std::string> overrides) {
    overrides.emplace_back("enable_lora=true");
    const auto job = resolve(std::move(overrides));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->train.model.lora : LoraConfig();
  }
  static std::string error(std::vector<std::string> overrides) {
    overrides.emplace_back("enable_lora=true");
    return error_of(resolve(std::move(overrides)));
  }
};

TEST_F(LoraKeys, DefaultsAreThoseOfPax) {
  const LoraConfig config = lora({});
  EXPECT_EQ(config.rank, 32);
  EXPECT_EQ(config.scale(), 1);
  EXPECT_EQ(config.dropout, 0);
  EXPECT_THAT(config.targets, ElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                          "up_proj", "down_proj"));
  EXPECT_FALSE(resolve({})->train.model.lora.enabled());
}

TEST_F(LoraKeys, TargetsAreGroupsAndNames) {
  EXPECT_THAT(lora({"lora_targets=attention"}).targets,
              ElementsAre("q_proj", "k_proj", "v_proj", "o_proj"));
  EXPECT_THAT(lora({"lora_targets=mlp"}).targets, ElementsAre("gate_proj", "up_proj", "down_proj"));
  EXPECT_THAT(lora({"lora_targets=down_proj, v_proj,q_proj,v_proj"}).targets,
              ElementsAre("q_proj", "v_proj", "down_proj"));
  EXPECT_THAT(lora({"lora_targets=attention,up_proj"}).targets,
              ElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "up_proj"));
  // An MLP without a gate.
  EXPECT_THAT(lora({"mlp_activations=['gelu']", "lora_targets=mlp"}).targets,
              ElementsAre("up_proj", "down_proj"));
}

TEST_F(LoraKeys, FrozenWeightsMayBeStoredInBlocks) {
  EXPECT_EQ(lora({}).weight_type, trainer::WeightType::kPlain);
  EXPECT_EQ(lora({"lora_weight_qtype=nf4"}).weight_type, trainer::WeightType::kNf4);
  EXPECT_EQ(lora({"lora_weight_qtype=int8"}).weight_type, trainer::WeightType::kInt8);
}

TEST_F(LoraKeys, ValuesOutOfRange) {
  EXPECT_THAT(error({"lora_targets=q_prj"}),
              HasSubstr("lora_targets=q_prj: there is no such projection; did you mean q_proj?"));
  EXPECT_THAT(error({"lora_targets=atention"}), HasSubstr("did you mean attention?"));
  EXPECT_THAT(error({"lora_targets=everything"}), AllOf(HasSubstr("lora_targets=everything"),
                                                        HasSubstr("all, attention, mlp, q_proj")));
  EXPECT_THAT(error({"lora_rank=0"}), HasSubstr("lora_rank=0: must be at least 1"));
  EXPECT_THAT(error({"lora_rank=2049"}),
              HasSubstr("lora_rank is 2049, but q_proj is a matrix of 2048 x 2048: it must be at "
                        "most 2048"));
  EXPECT_THAT(error({"base_num_kv_heads=1", "lora_rank=130"}),
              HasSubstr("k_proj is a matrix of 128 x 2048: it must be at most 128"));
  EXPECT_THAT(error({"lora_alpha=0"}), HasSubstr("lora_alpha is 0, but must be above 0"));
  EXPECT_THAT(error({"lora_dropout=1"}), HasSubstr("lora_dropout is 1, but must be in [0, 1)"));
  EXPECT_THAT(error({"mlp_activations=['gelu']", "lora_targets=gate_proj"}),
              HasSubstr("lora_targets has gate_proj, but the model's MLP has no gate"));
  EXPECT_THAT(error({"lora_weight_qtype=nf5"}), HasSubstr("lora_weight_qtype=nf5"));
  EXPECT_THAT(error({"lora_weight_qtype=nf4", "zero_stage=1"}),
              HasSubstr("lora_weight_qtype is nf4, but zero_stage is 1"));
}

TEST_F(LoraKeys, KeysOfAdaptersNeedThem) {
  const auto job = resolve({"lora_rank=8", "lora_targets=mlp", "lora_restore_path=/adapters"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->warnings, AllOf(Contains(HasSubstr("lora_rank has no effect: enable_lora is")),
                                   Contains(HasSubstr("lora_targets has no effect")),
                                   Contains(HasSubstr("lora_restore_path has no effect"))));
  EXPECT_EQ(job->train.lora_restore_path, "");
  EXPECT_EQ(resolve({"enable_lora=true", "lora_restore_path=adapters"})->train.lora_restore_path,
            "/somewhere/adapters");
}

// Adapters and their moments are float32 whatever the type of the base.
TEST_F(LoraKeys, TypesOfWeights) {
  const auto job = resolve({"enable_lora=true", "weight_dtype=bfloat16", "dtype=float32"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.weight_type(), trainer::DType::kF32);
  EXPECT_EQ(job->train.frozen_type(), trainer::DType::kBf16);
  EXPECT_EQ(job->train.optimizer.mu_dtype, trainer::ComputeType::kFloat32);
  EXPECT_EQ(resolve({"enable_lora=true", "dtype=bfloat16"})->train.frozen_type(),
            trainer::DType::kBf16);
  EXPECT_EQ(resolve({"enable_lora=true", "dtype=float32"})->train.frozen_type(),
            trainer::DType::kF32);
  EXPECT_THAT(resolve({"enable_lora=true"})->warnings, IsEmpty());
}

}  // namespace
}  // namespace muster::jobspec

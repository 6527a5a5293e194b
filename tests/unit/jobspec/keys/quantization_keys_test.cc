#include "jobspec/keys/quantization_keys.h"

#include <gmock/gmock.h>

#include "jobspec/resolve.h"
#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trainer::QuantizationConfig;
using trainer::QuantizationType;

class QuantizationKeys : public ConfigFiles {};

TEST_F(QuantizationKeys, MaxTextValues) {
  for (const auto& [name, type] :
       {std::pair("", QuantizationType::kNone), std::pair("int8", QuantizationType::kInt8),
        std::pair("fp8", QuantizationType::kFp8Delayed),
        std::pair("te_fp8_delayedscaling", QuantizationType::kFp8Delayed),
        std::pair("te_fp8_currentscaling", QuantizationType::kFp8Current)}) {
    const auto job = resolve({std::string("quantization=") + name});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->train.model.quantization, QuantizationConfig{.type = type}) << name;
    EXPECT_THAT(job->warnings, IsEmpty());
  }
  EXPECT_FALSE(resolve({})->train.model.quantization.enabled());
  EXPECT_EQ(resolve({"int8_training=True"})->train.model.quantization.type,
            QuantizationType::kInt8);
}

TEST_F(QuantizationKeys, UnsupportedValuesNameTheNearest) {
  for (const auto& [name, expected] :
       {std::pair("fp8_full", "the nearest is quantization=te_fp8_currentscaling"),
        std::pair("nanoo_fp8", "the nearest is quantization=fp8"),
        std::pair("int4", "the nearest is quantization=int8"),
        std::pair("te_mxfp8", "scales of blocks are not in this version"),
        std::pair("intmp", "quant_cfg_path"), std::pair("fp9", "must be \"\", int8, fp8")}) {
    EXPECT_THAT(error_of(resolve({std::string("quantization=") + name})),
                AllOf(HasSubstr("quantization="), HasSubstr(name), HasSubstr(expected)));
  }
  EXPECT_THAT(error_of(resolve({"int8_training=True", "quantization=fp8"})),
              HasSubstr("int8_training"));
}

TEST_F(QuantizationKeys, RelatedKeysPerType) {
  EXPECT_EQ(resolve({"quantization=fp8", "fp8_amax_history_length=16"})
                ->train.model.quantization.amax_history_length,
            16);
  EXPECT_THAT(error_of(resolve({"quantization=fp8", "fp8_amax_history_length=0"})),
              HasSubstr("fp8_amax_history_length"));
  EXPECT_FALSE(resolve({"quantization=int8", "quantization_local_shard_count=0"})
                   ->train.model.quantization.int8_weight_gradients);
  EXPECT_THAT(error_of(resolve({"quantization=int8", "quantization_local_shard_count=4"})),
              AllOf(HasSubstr("quantization_local_shard_count=4"), HasSubstr("-1 or 1")));
  EXPECT_THAT(resolve({"quantization=fp8", "quantization_local_shard_count=0"})->warnings,
              Contains(HasSubstr("only quantization=int8 reads it")));
  EXPECT_THAT(resolve({"quantization=int8", "fp8_amax_history_length=8"})->warnings,
              Contains(HasSubstr("only quantization=fp8 reads it")));
  EXPECT_THAT(error_of(resolve({"model_name=mixtral-8x7b", "quantization=fp8"})),
              AllOf(HasSubstr("quantization is fp8"), HasSubstr("num_experts 8")));
}

}  // namespace
}  // namespace muster::jobspec

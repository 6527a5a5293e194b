// Weights in blocks against bitsandbytes, with the fixture of tests/golden/make_qlora.py.
#include "trainer_core/base/weight_blocks.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/trainer_core/golden_file.h"
#include "trainer_core/base/model_config.h"

namespace muster::trainer {
namespace {

using ::testing::HasSubstr;

class WeightBlocksGolden : public testing::TestWithParam<WeightType> {};

TEST_P(WeightBlocksGolden, CodesScalesAndValues) {
  const GoldenFile file("qlora/blocks.safetensors");
  const WeightType type = GetParam();
  const std::string name(name_of(kWeightTypeNames, type));
  const auto values = file.tensor<float>("values");
  const auto expected = file.tensor<float>(name + ".codes");
  std::vector<uint8_t> codes(expected.size());
  std::vector<float> scales(values.size() / kWeightBlock);
  encode_blocks(type, values, codes, scales);
  EXPECT_EQ(std::vector<float>(codes.begin(), codes.end()), expected);
  EXPECT_EQ(scales, file.tensor<float>(name + ".scales"));
  std::vector<float> rounded = values;
  round_to_blocks(type, rounded);
  EXPECT_EQ(rounded, file.tensor<float>(name + ".values"));
}

INSTANTIATE_TEST_SUITE_P(Types, WeightBlocksGolden,
                         testing::Values(WeightType::kNf4, WeightType::kInt8),
                         [](const auto& test) {
                           return std::string(name_of(kWeightTypeNames, test.param));
                         });

TEST(WeightBlocks, OfZerosAreZeros) {
  for (const WeightType type : {WeightType::kNf4, WeightType::kInt8}) {
    std::vector<float> zeros(kWeightBlock), scales(1, 5.0F);
    std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(type, kWeightBlock)));
    encode_blocks(type, zeros, codes, scales);
    EXPECT_EQ(scales[0], 0);
    round_to_blocks(type, zeros);
    EXPECT_THAT(zeros, testing::Each(0.0F));
  }
}

TEST(WeightBlocks, AnyNumberOfThreadsGivesTheSameCodes) {
  constexpr int64_t kBlocks = 3 * 4096 + 5;
  std::vector<float> values(static_cast<size_t>(kBlocks * kWeightBlock));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 2654435761U % 100'003) / 100'003.0F - 0.5F;
  for (const WeightType type : {WeightType::kNf4, WeightType::kInt8}) {
    std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(type, kBlocks * kWeightBlock)));
    std::vector<float> scales(static_cast<size_t>(kBlocks));
    encode_blocks(type, values, codes, scales);
    for (const int32_t threads : {1, 2, 7}) {
      std::vector<uint8_t> other_codes(codes.size(), 99);
      std::vector<float> other_scales(scales.size(), -1);
      encode_blocks_on(threads, type, values, other_codes, other_scales);
      EXPECT_EQ(other_codes, codes) << threads;
      EXPECT_EQ(other_scales, scales) << threads;
    }
  }
}

TEST(WeightBlocks, RanksNeedWholeBlocks) {
  ModelConfig llama{.emb_dim = 4096,
                    .num_layers = 1,
                    .num_query_heads = 32,
                    .num_kv_heads = 32,
                    .head_dim = 128,
                    .mlp_dim = 11008};
  EXPECT_TRUE(check_weight_blocks(llama, 8).ok());
  llama.lora.weight_type = WeightType::kNf4;
  EXPECT_TRUE(check_weight_blocks(llama, 4).ok());
  EXPECT_THAT(check_weight_blocks(llama, 8).message(),
              HasSubstr("lora_weight_qtype is nf4, but down_proj (4096 x 11008) on 8 tensor ranks "
                        "has 1376 elements of a row per rank, which must be a multiple of 64"));
  llama.emb_dim = 30;
  llama.head_dim = 2;
  llama.mlp_dim = 31;
  EXPECT_THAT(check_weight_blocks(llama, 1).message(),
              HasSubstr("up_proj (31 x 30) on 1 rank has 930 consecutive elements"));
  llama.mlp_dim = 32;
  EXPECT_TRUE(check_weight_blocks(llama, 1).ok());
}

}  // namespace
}  // namespace muster::trainer

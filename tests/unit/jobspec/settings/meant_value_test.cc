#include "jobspec/settings/meant_value.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>

#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kTypes[] = {"float32", "bfloat16"};

TEST(MeantValue, ShortNamesOfTypes) {
  for (const char* word : {"bf16", "BF16", "fp16", "float16", "half", "jnp.bfloat16", "bfloat",
                           "torch.float16", "bflaot16", "bfloat_16"})
    EXPECT_EQ(meant_value(word, kTypes), "bfloat16") << word;
  for (const char* word : {"fp32", "f32", "float", "full", "jnp.float32", "float64", "flaot32"})
    EXPECT_EQ(meant_value(word, kTypes), "float32") << word;
  for (const char* word : {"", "int8", "x", "complex"})
    EXPECT_EQ(meant_value(word, kTypes), "") << word;
}

TEST(MeantValue, ARowWhoseValueAKeyLacksDoesNotCount) {
  constexpr std::string_view kPrecisions[] = {"default", "high", "highest", "float32"};
  EXPECT_EQ(meant_value("bf16", kPrecisions), "default");
  EXPECT_EQ(meant_value("hi", kPrecisions), "high");
  EXPECT_EQ(meant_value("tf32", kPrecisions), "");
  EXPECT_EQ(suggestion("matmul_precision", "hi", kPrecisions),
            "; did you mean matmul_precision=high?");
  EXPECT_EQ(suggestion("matmul_precision", "tf32", kPrecisions), "");
}

class Suggestions : public ConfigFiles {};

// Every key with a list of values has a way out for a value that is not in it.
TEST_F(Suggestions, EveryListedKeyNamesTheNearestValue) {
  const std::pair<const char*, const char*> cases[] = {
      {"dtype=bf16", "dtype=bfloat16"},
      {"dtype=half", "dtype=bfloat16"},
      {"dtype=float", "dtype=float32"},
      {"weight_dtype=bf16", "weight_dtype=bfloat16"},
      {"weight_dtype=fp32", "weight_dtype=float32"},
      {"mu_dtype=bf16", "mu_dtype=bfloat16"},
      {"quantization=INT8", "quantization=int8"},
      {"quantization=e4m3", "quantization=fp8"},
      {"matmul_precision=hi", "matmul_precision=high"},
      {"matmul_precision=tf32", "matmul_precision=tensorfloat32"},
      {"attention=cudnn", "attention=cudnn_flash_te"},
      {"attention=te", "attention=cudnn_flash_te"},
      {"attention=dot_prodct", "attention=dot_product"},
      {"opt_type=adam", "opt_type=adamw"},
      {"lr_schedule_type=cos", "lr_schedule_type=cosine"},
      {"decoder_block=llama", "decoder_block=llama2"},
      {"dataset_type=synth", "dataset_type=synthetic"},
      {"dataset_type=huggingface", "dataset_type=hf"},
      {"hardware=cuda", "hardware=gpu"},
      {"hardware=GPU", "hardware=gpu"},
      {"not_finite_policy=skipp", "not_finite_policy=skip"},
      {"router_style=paxx", "router_style=pax"},
      {"position_type=rotary_interleaved", "position_type=rope_interleaved"},
      {"position_type=rotary", "position_type=rope"},
      {"not_finite_policy=ignore", ""},
      {"enable_checkpointing=flase", "enable_checkpointing=false"},
      {"enable_checkpointing=off", "enable_checkpointing=false"},
      {"packing=yes", "packing=true"},
  };
  for (const auto& [wrong, right] : cases) {
    const std::string message = error_of(resolve({wrong}));
    EXPECT_THAT(message, HasSubstr(std::string(wrong).substr(0, std::string(wrong).find('='))));
    if (*right == '\0') {
      EXPECT_THAT(message, Not(HasSubstr("did you mean"))) << wrong;
    } else {
      EXPECT_THAT(message, HasSubstr(absl::StrCat("did you mean ", right, "?"))) << wrong;
    }
  }
  EXPECT_THAT(error_of(resolve({"remat_policy=min"})), HasSubstr("did you mean minimal?"));
  EXPECT_THAT(error_of(resolve({"remat_policy=save_nothing"})), HasSubstr("did you mean full?"));
}

}  // namespace
}  // namespace muster::jobspec

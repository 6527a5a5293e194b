#include "trainer_core/convert/expected_model.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ExpectedModel, ParsesOriginAndPairs) {
  EXPECT_THAT(*parse_expected("--model-size 7b: head_dim=128 vocab_size=32000"),
              ElementsAre(ExpectedValue{"--model-size 7b", "head_dim", "128"},
                          ExpectedValue{"--model-size 7b", "vocab_size", "32000"}));
  EXPECT_THAT(*parse_expected("gated_mlp=true"),
              ElementsAre(ExpectedValue{"", "gated_mlp", "true"}));
  for (const char* text : {"head_dim", "a: head_dim", "=1", "head_dim="})
    EXPECT_TRUE(absl::IsInvalidArgument(parse_expected(text).status())) << text;
}

TEST(ExpectedModel, AnotherValueIsAnErrorWithBothValues) {
  ModelConfig model;
  model.num_layers = 2;
  model.gated_mlp = true;
  EXPECT_TRUE(check_expected(model, "/in",
                             {{"", "base_num_decoder_layers", "2"},
                              {"", "gated_mlp", "true"},
                              {"", "norm_type", "rms"}})
                  .ok());
  const auto message = [&](const ExpectedValue& expected) {
    return std::string(check_expected(model, "/in", {expected}).message());
  };
  EXPECT_THAT(message({"--num-of-layer 24", "base_num_decoder_layers", "24"}),
              HasSubstr("--num-of-layer 24 requires base_num_decoder_layers=24, but /in has "
                        "base_num_decoder_layers=2"));
  EXPECT_THAT(message({"", "gated_mlp", "false"}), HasSubstr("--expect requires gated_mlp=false"));
  EXPECT_THAT(message({"", "num_decoder_layers", "2"}),
              AllOf(HasSubstr("no model has the key num_decoder_layers"),
                    HasSubstr("base_num_decoder_layers")));
}

}  // namespace
}  // namespace muster::trainer

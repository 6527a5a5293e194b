#include "trainer_core/base/name_patterns.h"

#include <gmock/gmock.h>

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(NamePatterns, OneThatMatchesAnywhereIsEnough) {
  const auto patterns = NamePatterns::compile({"norm", R"(\.bias$)"});
  ASSERT_TRUE(patterns.ok()) << patterns.status();
  EXPECT_TRUE(patterns->match("model.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(patterns->match("model.layers.0.self_attn.q_proj.bias"));
  EXPECT_FALSE(patterns->match("model.bias.weight"));
  EXPECT_FALSE(NamePatterns::compile({})->match("anything"));
}

TEST(NamePatterns, InvalidExpressionsAreQuoted) {
  const auto error_of = [](const std::vector<std::string>& patterns) {
    return std::string(NamePatterns::compile(patterns).status().message());
  };
  EXPECT_THAT(error_of({"ok", "[norm"}), HasSubstr(R"("[norm" is no regular expression)"));
  EXPECT_THAT(error_of({std::string(kNamePatternBytesMax + 1, 'a')}), HasSubstr("257 bytes"));
  EXPECT_THAT(error_of(std::vector<std::string>(kNamePatternsMax + 1, "a")),
              AllOf(HasSubstr("65 patterns"), HasSubstr("at most 64")));
}

}  // namespace
}  // namespace muster::trainer

// Exported variables of Pax's and MaxText's users.
#include "jobspec/variables.h"

#include <gmock/gmock.h>

#include <set>

#include "jobspec/flag_table.h"
#include "tests/unit/jobspec/pasted_lines.h"

namespace muster::jobspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VariablesTest : public PastedLines {};

const FlagSetting* setting_of(const Translation& translation, std::string_view key) {
  const FlagSetting* found = nullptr;
  for (const FlagSetting& setting : translation.settings) {
    if (setting.key == key) found = &setting;
  }
  return found;
}

TEST_F(VariablesTest, ExportedOnesCountAsThoseOnTheLine) {
  const Environment exported = {{"PREC", "float32"},   {"ENABLE_FP8", "1"},
                                {"VOCAB_PATH", "/v"},  {"PERCORE_BATCH_SIZE", "2"},
                                {"HOME", "/home/ada"}, {"LOG_DIR", ""}};
  const auto translation = translate({"CONFIG=GPT126M"}, exported);
  ASSERT_TRUE(translation.ok()) << translation.status();
  EXPECT_EQ(setting_of(*translation, "dtype")->text, "float32");
  EXPECT_EQ(setting_of(*translation, "dtype")->flag, "environment PREC");
  EXPECT_EQ(setting_of(*translation, "quantization")->text, "fp8");
  EXPECT_EQ(setting_of(*translation, "tokenizer_path")->text, "/v");
  EXPECT_EQ(setting_of(*translation, "per_device_batch_size")->text, "2");
  EXPECT_EQ(setting_of(*translation, "run_name"), nullptr);
}

TEST_F(VariablesTest, TheLineOverridesThem) {
  const Environment exported = {{"PREC", "float32"}, {"PERCORE_BATCH_SIZE", "2"}};
  const auto word = translate({"CONFIG=GPT126M", "PREC=bfloat16"}, exported);
  EXPECT_EQ(setting_of(*word, "dtype")->text, "bfloat16");
  const auto flag = translate({"CONFIG=GPT126M", "--fdl.PERCORE_BATCH_SIZE=3"}, exported);
  EXPECT_EQ(setting_of(*flag, "per_device_batch_size")->text, "3");
}

TEST_F(VariablesTest, MistakesNameTheVariable) {
  EXPECT_THAT(error_of(translate({"CONFIG=GPT126M"}, {{"ENABLE_FP8", "maybe"}})),
              HasSubstr("environment ENABLE_FP8=maybe: expected True or False"));
}

TEST_F(VariablesTest, ThoseWithoutEffectAreOneWarningEach) {
  const Environment exported = {{"NVTE_FUSED_ATTN", "1"}, {"PREC", "float32"},
                                {"ENABLE_TE", "1"},       {"CONTAINER", "image"},
                                {"XLA_FLAGS", "--xla_x"}, {"PATH", "/bin"}};
  EXPECT_THAT(exported_without_effect(exported, Dialect::kMaxText),
              ElementsAre(HasSubstr("NVTE_FUSED_ATTN=1 has no effect: there is no Transformer"),
                          HasSubstr("PREC=float32 has no effect: only lines of Pax read it"),
                          HasSubstr("ENABLE_TE=1 has no effect"),
                          HasSubstr("XLA_FLAGS=--xla_x has no effect: there is no XLA here")));
  EXPECT_THAT(exported_without_effect(exported, Dialect::kPax),
              ElementsAre(HasSubstr("NVTE_FUSED_ATTN"), HasSubstr("XLA_FLAGS")));
  EXPECT_THAT(exported_words({{"CONTAINER", "image"}, {"BASE_WORKSPACE_DIR", "/w"}}, {}),
              IsEmpty());
}

TEST_F(VariablesTest, TheTableHasEveryVariableOnce) {
  std::set<std::string_view> names;
  for (const Variable& row : variables()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.meaning.empty() || row.source.empty() || row.read_by.empty()) << row.name;
  }
  for (const Flag& flag : pax_variables()) EXPECT_TRUE(names.contains(flag.name)) << flag.name;
}

}  // namespace
}  // namespace muster::jobspec

// Exported variables of Pax's and MaxText's users.
#include "jobspec/dialects/variables.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include <absl/strings/str_cat.h>

#include "jobspec/dialects/flag_table.h"
#include "jobspec/dialects/launcher.h"
#include "tests/unit/jobspec/pasted_lines.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
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

TEST_F(VariablesTest, OfVariablesThatMeanTheSameOneIsUsedAndNamed) {
  const auto line = pasted("CONFIG=Synthetic126M LOG_DIR=/w/a LOG_DIR_LOCAL=/w/b");
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->spec.output_directory(), "/w/b");
  EXPECT_THAT(line->warnings,
              ElementsAre("LOG_DIR=/w/a is not used, but LOG_DIR_LOCAL=/w/b: they mean the same, "
                          "and the last one on the line counts"));
  EXPECT_THAT(pasted("CONFIG=Synthetic126M LOG_DIR=/w/a LOG_DIR_LOCAL=/w/a")->warnings,
              ::testing::IsEmpty());
  const std::vector<std::string> config = {"CONFIG=GPT126M"};
  const auto tokenizers = [](const Translation& translation) {
    std::vector<std::string> paths;
    for (const FlagSetting& setting : translation.settings) {
      if (setting.key == "tokenizer_path") paths.push_back(setting.text);
    }
    return paths;
  };
  for (const Environment& exported :
       {Environment{{"VOCAB_PATH", "/a"}, {"BASE_VOCAB_PATH", "/b"}},
        Environment{{"BASE_VOCAB_PATH", "/b"}, {"VOCAB_PATH", "/a"}}}) {
    const auto translation = translate(config, exported);
    ASSERT_TRUE(translation.ok()) << translation.status();
    EXPECT_THAT(translation->warnings,
                ElementsAre("environment BASE_VOCAB_PATH=/b is not used, but environment "
                            "VOCAB_PATH=/a: they mean the same, and the program's own name wins "
                            "over the one of its Slurm script"));
    EXPECT_THAT(tokenizers(*translation), ElementsAre("/a"));
  }
  const auto both = translate({"CONFIG=GPT126M", "BASE_VOCAB_PATH=/b"}, {{"VOCAB_PATH", "/a"}});
  EXPECT_THAT(tokenizers(*both), ElementsAre("/b")) << "the line wins";
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
                          HasSubstr("PREC=float32 has no effect: it is for Pax's lines and "
                                    "slurm/*.sub; here it is dtype"),
                          HasSubstr("ENABLE_TE=1 has no effect: there is no Transformer Engine"),
                          HasSubstr("CONTAINER=image has no effect: "),
                          HasSubstr("XLA_FLAGS=--xla_x has no effect: there is no XLA here")));
  EXPECT_THAT(exported_without_effect(exported, Dialect::kPax),
              ElementsAre(HasSubstr("NVTE_FUSED_ATTN"), HasSubstr("XLA_FLAGS")));
  // Switches that are off cause none.
  EXPECT_THAT(exported_without_effect({{"ENABLE_FP8", "0"}, {"USE_LORA", "False"}, {"PREC", ""}},
                                      Dialect::kMaxText),
              IsEmpty());
}

// A value that each variable may have: "1" switches, and is a name, a number and a path.
std::string value_for(std::string_view name) {
  if (name == "CONFIG") return "GPT126M";
  if (name == "PREC") return "float32";
  if (name == "LORA_TARGET_LAYERS") return "mlp";
  return "1";
}

// A name that the row stands for.
std::string example_of(std::string_view name) {
  if (name == "M_<KEY>") return "M_STEPS";
  if (name.ends_with('*')) return std::string(name.substr(0, name.size() - 1)) + "DEBUG";
  return std::string(name);
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

// Exported on a line of any dialect, a variable is applied, or a warning or an error names it. On
// the line, too; and where a key has its meaning, the sentence names the key.
TEST_F(VariablesTest, NoneIsIgnoredInSilence) {
  const std::map<Dialect, std::vector<std::string>> lines = {
      {Dialect::kMaxText, {"configs/base.yml", "--xla_x"}},
      {Dialect::kPax, {"--fdl_config=x.GPT126M"}},
      {Dialect::kAxlearn, {"--module=text.gpt.c4_trainer", "--config=fuji-7B-v2"}}};
  for (const auto& [dialect, line] : lines) {
    for (const Variable& row : variables()) {
      const std::string name = example_of(row.name), value = value_for(row.name);
      SCOPED_TRACE(absl::StrCat(name, " in dialect ", static_cast<int>(dialect)));
      const bool is_for_all =
          name == "M_STEPS" || name == "NCCL_DEBUG" || name.starts_with("MUSTER_");
      const auto exported = line.front().ends_with(".yml")
                                ? absl::StatusOr<Translation>(Translation())
                                : translate(line, {{name, value}});
      std::vector<std::string> sentences = exported_without_effect({{name, value}}, dialect);
      bool is_applied = is_for_all;
      if (!exported.ok()) {
        sentences.emplace_back(exported.status().message());
      } else {
        sentences.insert(sentences.end(), exported->warnings.begin(), exported->warnings.end());
        for (const FlagSetting& setting : exported->settings)
          is_applied = is_applied || contains(setting.flag, name);
      }
      const auto named = std::ranges::find_if(
          sentences, [&](const std::string& text) { return contains(text, name); });
      EXPECT_NE(is_applied, named != sentences.end()) << "either applied or named";
      if (named != sentences.end() && dialect != Dialect::kPax) {
        EXPECT_THAT(*named, HasSubstr(std::string(row.instead)));
      }
      // The word on the line: of MaxText and AXLearn it is refused in the same words.
      if (is_for_all || dialect == Dialect::kPax || !why_without_effect(name).empty()) continue;
      const absl::Status refused = check_no_variable(name, value);
      EXPECT_THAT(std::string(refused.message()),
                  AllOf(HasSubstr(absl::StrCat(name, "=", value, ": ")),
                        HasSubstr(std::string(row.instead))));
    }
  }
}

TEST_F(VariablesTest, OnALineOfAnotherDialectTheErrorNamesTheKey) {
  EXPECT_THAT(error_of(load({"ENABLE_FP8=1"})),
              HasSubstr("ENABLE_FP8=1: it is for Pax's lines and slurm/*.sub; here "
                        "it is quantization=fp8"));
  EXPECT_THAT(error_of(load({"ENABLE_TE=1"})), HasSubstr("there is no Transformer Engine"));
  EXPECT_THAT(error_of(translate({"CONFIG=GPT126M", "DTYPE=fp8"}, {})),
              HasSubstr("DTYPE=fp8: it is for slurm/launch.sh; here"));
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

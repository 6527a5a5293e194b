#include "jobspec/dialects/launcher.h"

#include <gmock/gmock.h>

#include "tests/unit/jobspec/pasted_lines.h"

namespace muster::jobspec {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class LauncherTest : public PastedLines {};

TEST_F(LauncherTest, EmptyAndBlankWordsAreNamed) {
  const auto error = [](std::vector<std::string> line) {
    return std::string(skip_launcher(line).status().message());
  };
  const std::vector<std::vector<std::string>> lines = {
      {"base.yml"},
      {"CONFIG=GPT126M"},
      {"--fdl_config=GPT126M"},
      {"--module=text.gpt.c4_trainer", "--config=fuji-test"},
      {"NCCL_DEBUG=INFO", "python3", "MaxText/train.py"}};
  for (std::vector<std::string> line : lines) {
    EXPECT_EQ(error(line), "");
    std::vector<std::string> with_value = line;
    with_value.insert(with_value.end(), {"--flag", ""});
    EXPECT_EQ(error(with_value), "");
    line.push_back("");
    EXPECT_EQ(error(line),
              "an argument of the line is empty: perhaps a variable in quotes is not set");
    for (const char* blank : {" ", "\t", "  ", "\r"}) {
      line.back() = blank;
      EXPECT_EQ(error(line),
                "an argument of the line is a blank: remove blanks behind the backslash at the end "
                "of a line");
    }
  }
}

TEST_F(LauncherTest, Launchers) {
  std::vector<std::string> maxtext = words("python3 MaxText/train.py MaxText/configs/base.yml a=b");
  ASSERT_TRUE(skip_launcher(maxtext)->has_program);
  EXPECT_THAT(maxtext, ::testing::ElementsAre("MaxText/configs/base.yml", "a=b"));
  std::vector<std::string> none = words("configs/base.yml steps=3");
  EXPECT_FALSE(skip_launcher(none)->has_program);
  EXPECT_THAT(none, ::testing::ElementsAre("configs/base.yml", "steps=3"));
  std::vector<std::string> tuned =
      words("NVTE_FUSED_ATTN=1 M_STEPS=3 python3 -u -W ignore -X dev MaxText/train.py base.yml");
  EXPECT_THAT(skip_launcher(tuned)->environment,
              ::testing::ElementsAre("NVTE_FUSED_ATTN=1", "M_STEPS=3"));
  EXPECT_THAT(tuned, ::testing::ElementsAre("base.yml"));
  std::vector<std::string> pax =
      words("ENABLE_FP8=1 NCCL_PROTO=LL128 python3 -m paxml.main --fdl_config=x.GPT5B");
  EXPECT_THAT(skip_launcher(pax)->environment, ::testing::ElementsAre("NCCL_PROTO=LL128"));
  EXPECT_THAT(pax, ::testing::ElementsAre("ENABLE_FP8=1", "--fdl_config=x.GPT5B"));
  std::vector<std::string> flags =
      words("NCCL_DEBUG=INFO --xla_gpu_foo=1 python3 -m paxml.main --fdl_config=GPT126M");
  EXPECT_THAT(skip_launcher(flags)->environment, ::testing::ElementsAre("NCCL_DEBUG=INFO"));
  EXPECT_THAT(flags, ::testing::ElementsAre("--fdl_config=GPT126M", "--xla_gpu_foo=1"));
  for (const char* text : {"python3 train.py", "python3 MaxText/train_compile.py x",
                           "python3 -m torch.distributed.run", "python", "python3 -m"}) {
    std::vector<std::string> other = words(text);
    EXPECT_FALSE(skip_launcher(other).ok()) << text;
  }
}

TEST_F(LauncherTest, ScriptsAndLaunchersHaveAHint) {
  for (const char* text : {"bash run_pile.sh", "CONFIG=GPT5B ./run_pile.sh", "export CONFIG=GPT5B",
                           "/usr/bin/srun python3 MaxText/train.py", "sbatch x", "docker run x"}) {
    std::vector<std::string> other = words(text);
    EXPECT_THAT(error_of(skip_launcher(other)), HasSubstr("paste the python3 line")) << text;
  }
}

TEST_F(LauncherTest, AFlagWinsOverAVariableWhereverTheyStand) {
  for (const char* text : {"PERCORE_BATCH_SIZE=4 python3 -m paxml.main --fdl_config=x.GPT126M "
                           "--fdl.PERCORE_BATCH_SIZE=2",
                           "CONFIG=GPT126M --fdl.PERCORE_BATCH_SIZE=2 PERCORE_BATCH_SIZE=4"}) {
    const auto job = pasted(text);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->train.per_device_batch_size, 2) << text;
  }
}

TEST_F(LauncherTest, VariablesOfXlaAreOneWarning) {
  for (const char* text : {"CONFIG=GPT126M XLA_FLAGS=--xla_a=b", "CONFIG=GPT126M NVTE_FUSED_ATTN=1",
                           "LIBTPU_INIT_ARGS=--x --config=fuji-test"}) {
    const auto job = pasted(text);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(job->warnings, Contains(HasSubstr("has no effect: there "))) << text;
  }
  EXPECT_EQ(why_without_effect("NCCL_PROTO"), "");
}

TEST_F(LauncherTest, FlagsOfXlaMayStandAnywhere) {
  for (const char* text :
       {"base.yml --xla_gpu_a=true steps=5 --xla_gpu_b", "--xla_gpu_a=true CONFIG=GPT126M --xla_b=",
        "--config=fuji-test --xla_gpu_a=true --xla_gpu_simplify_all_fp_conversions"}) {
    const auto translation = translate(words(text));
    ASSERT_TRUE(translation.ok()) << translation.status();
    EXPECT_THAT(translation->warnings,
                ::testing::ElementsAre("--xla_gpu_a=true and 1 more have no effect: there is no "
                                       "XLA here"))
        << text;
  }
  // absl's flags take their value from the next word, too.
  const auto apart = translate(words("base.yml --xla_gpu_a 0 steps=5 --xla_gpu_b false"));
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_THAT(apart->overrides, ::testing::ElementsAre("steps=5"));
  EXPECT_THAT(translate(words("base.yml --xla_gpu_a steps=5"))->overrides,
              ::testing::ElementsAre("steps=5"));
  EXPECT_TRUE(is_of_ranks("NCCL_DEBUG=INFO"));
  EXPECT_FALSE(is_of_ranks("NCCL_DEBUG"));
}

TEST_F(LauncherTest, AProgramWithoutPythonHasAHint) {
  std::vector<std::string> other = words("train.py --lr 1e-3");
  EXPECT_THAT(error_of(skip_launcher(other)), HasSubstr("muster run -- python3 train.py …"));
  std::vector<std::string> maxtext = words("MaxText/train.py base.yml steps=5");
  ASSERT_TRUE(skip_launcher(maxtext)->has_program);
  EXPECT_THAT(maxtext, ::testing::ElementsAre("base.yml", "steps=5"));
}

}  // namespace
}  // namespace muster::jobspec

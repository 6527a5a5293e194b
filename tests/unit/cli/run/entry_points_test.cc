#include "cli/run/entry_points.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> split(const std::string& line) { return absl::StrSplit(line, ' '); }

std::vector<std::string> mapped(const std::string& line) {
  const auto words = map_entry_point(split(line));
  EXPECT_TRUE(words.ok()) << line << ": " << words.status();
  return words.ok() ? words->words : std::vector<std::string>();
}

std::string error(const std::string& line) {
  return std::string(map_entry_point(split(line)).status().message());
}

TEST(EntryPoints, OtherLinesAreUnchanged) {
  for (const char* line :
       {"run configs/base.yml steps=5", "run python3 MaxText/train.py MaxText/configs/base.yml",
        "run -- python3 MaxText/decode.py", "run -- python3 train.py --mode=eval",
        "run python3 train.py", "decode configs/base.yml", "config show",
        "list python3 MaxText/decode.py x", "run X=1", "run", "run python3", "run python3 -m",
        "run --ranks 2 python3 -m paxml.main"})
    EXPECT_EQ(mapped(line), split(line)) << line;
}

TEST(EntryPoints, TrainersNeedNoPython) {
  EXPECT_EQ(mapped("run MaxText/train.py base.yml steps=1"),
            split("run python3 MaxText/train.py base.yml steps=1"));
  EXPECT_EQ(mapped("run A=1 /opt/paxml/paxml/main.py --fdl_config=X"),
            split("run A=1 python3 /opt/paxml/paxml/main.py --fdl_config=X"));
}

TEST(EntryPoints, DecodeReadsTheRunsConfig) {
  for (const char* line :
       {"run M_STEPS=1 python3 MaxText/decode.py base.yml run_name=r prompt=hello",
        "run M_STEPS=1 python3 -m MaxText.decode base.yml run_name=r prompt=hello",
        "run M_STEPS=1 MaxText/decode.py base.yml run_name=r prompt=hello"})
    EXPECT_EQ(mapped(line),
              split("decode M_STEPS=1 python3 MaxText/train.py base.yml run_name=r prompt=hello"))
        << line;
}

std::string note(const std::string& line) {
  const auto mapped = map_entry_point(split(line));
  return mapped.ok() ? mapped->note : std::string(mapped.status().message());
}

constexpr char kPaxConverter[] =
    "run python -u converter/main.py --input-path=/in --output-path=/out";

TEST(EntryPoints, ConvertersBecomeConvertWithTheirSizesAsExpectations) {
  const std::string sizes =
      ": base_num_decoder_layers=32 base_num_query_heads=32 base_num_kv_heads=32 head_dim=128 "
      "vocab_size=32000 num_experts=1";
  for (const char* line :
       {"run python3 MaxText/llama_or_mistral_ckpt.py --base-model-path /in --maxtext-model-path "
        "/out --model-size llama2-7b",
        "run python3 -m MaxText.llama_or_mistral_ckpt --base-model-path=/in "
        "--maxtext_model_path=/out --model-size=llama2-7b"})
    EXPECT_THAT(mapped(line), ElementsAre("convert", "/in", "/out", "--to", "muster",
                                          "--expect=--model-size llama2-7b" + sizes))
        << line;
  EXPECT_THAT(
      mapped("run python3 -m convert_llama_ckpt --base-model-path /in --pax-model-path "
             "/out --model-size 7b"),
      ElementsAre("convert", "/in", "/out", "--to", "muster", "--expect=--model-size 7b" + sizes));
  EXPECT_THAT(
      mapped(absl::StrCat(kPaxConverter,
                          " --fw=pax --direction=fw2te --num-of-layer=80 --num-of-head 64 "
                          "--head-dim=128 --mlp-intermediate-dim=28672 --skip-bias --weight-only "
                          "--use-gated-activations --num-gqa-groups=8 --pax-split-qkv "
                          "--te-qkv-layout=kv_packed")),
      ElementsAre("convert", "/in", "/out", "--to", "muster",
                  "--expect=--head-dim 128: head_dim=128",
                  "--expect=--mlp-intermediate-dim 28672: base_mlp_dim=28672",
                  "--expect=--num-gqa-groups 8: base_num_kv_heads=8",
                  "--expect=--num-of-head 64: base_num_query_heads=64",
                  "--expect=--num-of-layer 80: base_num_decoder_layers=80",
                  "--expect=--use-gated-activations: gated_mlp=true"));
  EXPECT_THAT(mapped("run python3 MaxText/llama_mistral_mixtral_orbax_to_hf.py base.yml "
                     "load_parameters_path=/run hf_model_path=/hf model_name=llama2-7b"),
              ElementsAre("convert", "/run", "/hf", "--to", "hf"));
}

TEST(EntryPoints, FlagsOfConvertersWithoutEffectAreNamed) {
  EXPECT_THAT(note(absl::StrCat(kPaxConverter, " --fw=pax --direction=fw2te --weight-only")),
              AllOf(HasSubstr("not used: --direction=fw2te, --fw=pax, --weight-only; the format"),
                    Not(HasSubstr("optimizer"))));
  EXPECT_THAT(note(absl::StrCat(kPaxConverter, " --fw=pax")),
              HasSubstr("Without --weight-only the original also converts the optimizer's state"));
  EXPECT_EQ(note("run python3 -m convert_llama_ckpt --base-model-path /in --pax-model-path /out "
                 "--model-size 7b"),
            "");
}

TEST(EntryPoints, FlagsOfConvertersThatCannotBeMetAreErrors) {
  const std::string llama =
      "run python3 MaxText/llama_or_mistral_ckpt.py --base-model-path /in --maxtext-model-path "
      "/out";
  EXPECT_THAT(error(llama + " --model-size llama5-1b"),
              AllOf(HasSubstr("--model-size is \"llama5-1b\""), HasSubstr("llama2-7b"),
                    HasSubstr("mixtral-8x22b")));
  EXPECT_THAT(error(llama + " --model-size llama2-7b --lora-input-adapters-path /lora"),
              AllOf(HasSubstr("--lora-input-adapters-path=/lora"),
                    HasSubstr("muster convert /lora/ADAPTER MERGED --base /in")));
  EXPECT_THAT(error(absl::StrCat(kPaxConverter, " --fw=t5x")), HasSubstr("T5X's models"));
  EXPECT_THAT(error(absl::StrCat(kPaxConverter, " --fw=jax")), HasSubstr("it may be pax"));
  EXPECT_THAT(error(absl::StrCat(kPaxConverter, " --num-of-layer=many")),
              HasSubstr("--num-of-layer is \"many\"; it must be a number above 0"));
}

TEST(EntryPoints, CompilingAheadOfTimeIsPlanning) {
  const std::string keys = " base.yml compile_topology=v5e-256";
  for (const char* command :
       {"run python3 MaxText/train_compile.py", "run python3 -m MaxText.train_compile",
        "run MaxText/train_compile.py", "plan python3 /opt/maxtext/MaxText/train_compile.py"})
    EXPECT_THAT(mapped(command + keys), split("plan python3 MaxText/train.py" + keys)) << command;
  EXPECT_THAT(mapped("plan python3 MaxText/train.py" + keys),
              split("plan python3 MaxText/train.py" + keys));
}

TEST(EntryPoints, EvaluationIsAModeOfEveryTrainer) {
  EXPECT_EQ(mapped("run python3 MaxText/train.py base.yml --mode=eval run_name=a"),
            split("run python3 MaxText/train.py base.yml eval_only=true run_name=a"));
  EXPECT_EQ(mapped("submit base.yml --mode eval run_name=a"),
            split("submit base.yml eval_only=true run_name=a"));
  EXPECT_EQ(mapped("run --module=text.gpt.c4_trainer --config=fuji-test --mode=eval"),
            split("run --module=text.gpt.c4_trainer --config=fuji-test eval_only=true"));
  // Pax's own flag is Pax's to read.
  for (const char* line :
       {"run python3 -m paxml.main --fdl_config=X --mode=eval", "run CONFIG=LLaMA7B --mode eval",
        "run base.yml --mode=train", "run base.yml run_name=a -- python3 x.py --mode=eval"})
    EXPECT_EQ(mapped(line), split(line)) << line;
}

TEST(EntryPoints, EvaluationsOfATrainingsLineAreRuns) {
  EXPECT_EQ(mapped("eval base.yml run_name=a --task lambada=f --out=o --task boolq=g"),
            split("run base.yml run_name=a eval_output=o eval_tasks=lambada=f,boolq=g "
                  "eval_only=true"));
  // The command itself reports what is missing.
  for (const char* line :
       {"eval", "eval --task lambada=f", "eval --task=lambada=f --out o --hardware cpu --json",
        "eval --run out/a --task lambada=f"})
    EXPECT_EQ(mapped(line), split(line)) << line;
}

TEST(EntryPoints, WhatIsMissingNamesWhatThereIs) {
  EXPECT_THAT(error("run python3 -m convert_llama_ckpt --model-size 7b"),
              HasSubstr("give --base-model-path=FOLDER and --pax-model-path=FOLDER"));
  EXPECT_THAT(error("run python3 -m convert_llama_ckpt --base-model-path a --turbo 7"),
              HasSubstr("--turbo has no counterpart"));
  for (const char* command : {"config show", "submit"}) {
    const std::string line = absl::StrCat(command, " python3 MaxText/");
    EXPECT_THAT(error(line + "train_compile.py base.yml"), HasSubstr("muster run with the same"));
    EXPECT_THAT(error(line + "decode.py base.yml prompt=a"), HasSubstr("muster run with the same"));
    EXPECT_THAT(mapped(line + "train.py base.yml"), split(line + "train.py base.yml"));
  }
  EXPECT_THAT(error("run python3 MaxText/maxengine_server.py base.yml"),
              HasSubstr("muster serve --run FOLDER"));
  for (const char* program : {"MaxText/sft_trainer.py", "-m MaxText.sft.sft_trainer"})
    EXPECT_THAT(error(absl::StrCat("run python3 ", program, " base.yml")),
                HasSubstr("muster run with load_parameters_path=MODEL"));
  EXPECT_THAT(error("run python3 MaxText/train_tokenizer.py"),
              HasSubstr("muster train-tokenizer --text"));
}

}  // namespace
}  // namespace muster::cli

// The whole command line: help, completion and errors, by running the real program.
#include "cli/command.h"

#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "daemon/command_line.h"
#include "tests/paths.h"
#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Result {
  int exit_code = 0;
  std::string output;  // stdout and stderr
};

Result shell(const std::string& command) {
  std::FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  Result result;
  std::array<char, 4096> buffer{};
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), got);
  }
  result.exit_code = WEXITSTATUS(pclose(pipe));
  return result;
}

Result muster(const std::string& arguments) { return shell(bin_dir() + "/muster " + arguments); }

std::string base_yml() { return source_dir() + "/configs/base.yml"; }

TEST(Commands, EachHelpHasExamples) {
  CLI::App app("", "muster");
  Action action;
  declare_all(app, action, nullptr);
  // config and debug are groups: their commands count.
  std::vector<const CLI::App*> commands;
  for (const CLI::App* command : daemon::commands_of(app)) {
    const auto below = daemon::commands_of(*command);
    commands.insert(commands.end(), below.begin(), below.end());
    if (below.empty()) commands.push_back(command);
  }
  EXPECT_GE(commands.size(), 13U);
  for (const CLI::App* command : commands) {
    EXPECT_FALSE(command->get_description().empty()) << command->get_name();
    EXPECT_THAT(command->get_footer(), HasSubstr("muster ")) << command->get_name();
    const bool is_hidden = command->get_group().empty();
    for (const CLI::Option* option : command->get_options())
      EXPECT_THAT(is_hidden ? "" : option->get_type_name(),
                  testing::Not(AnyOf("INT", "UINT", "FLOAT")))
          << command->get_name() << " " << option->get_name();
    const bool takes_json = command->get_option_no_throw("--json") != nullptr;
    // A job's script, its nodes and pods run the commands of slurm (except submit) and k8s
    // switches; users do not. A server prints no result, and open only an address.
    const std::string parent = command->get_parent()->get_name();
    const std::string name = command->get_name();
    const bool accepts_json = name != "completion" && name != "serve" && name != "switches" &&
                              name != "open" && (parent != "slurm" || name == "submit");
    EXPECT_EQ(takes_json, accepts_json) << command->get_name();
  }
}

TEST(Commands, HelpExitsWithZeroAndErrorsWithTwo) {
  EXPECT_EQ(muster("--help").exit_code, 0);
  EXPECT_EQ(muster("run --help").exit_code, 0);
  EXPECT_EQ(muster("").exit_code, 2);
  const Result typo = muster("rnu");
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.output, HasSubstr("did you mean muster run?"));
  const Result option = muster("run " + base_yml() + " --rank 4");
  EXPECT_EQ(option.exit_code, 2);
  EXPECT_THAT(option.output, HasSubstr("did you mean --ranks?"));
}

TEST(Commands, ErrorsNameTheAllowedValues) {
  for (const char* job : {"abc", "99999999999999999999", "0"}) {
    const Result result = muster(std::string("status ") + job);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.output, std::string("muster: error: job ") + job +
                                 ": must be a positive number (see `muster list`)\n");
  }
  const TempFolder folder;
  const Result check = muster("run " + base_yml() +
                              " run_name=refused dataset_type=shards dataset_path=/no-such "
                              "tokenizer_path=/no-such.model dtype=float32 base_output_directory=" +
                              folder.file("refused"));
  EXPECT_EQ(check.exit_code, 2);
  EXPECT_THAT(check.output, Not(HasSubstr("muster-trainer")));
}

TEST(Commands, ErrorsAreSentences) {
  const struct {
    const char* arguments;
    const char* expected;
  } kMistakes[] = {
      {"config shw", "unknown command shw; did you mean muster config show?"},
      {"''", "unknown command ''; muster --help lists them"},
      {"config", "muster config needs a command: show (see muster config --help)"},
      {"update 7", "nothing to change: give key=value for a config, -- COMMAND ARGS for a program"},
      {"update 7 --cancel steps=3", "--cancel withdraws a pending update: give no change"},
      {"update 7 steps=3 -- ./train", "steps=3: key=value is for a config, and -- COMMAND ARGS"},
      {"update 7 --rollback-steps x steps=3", "--rollback-steps: 'x' is not a whole number from 0"},
      {"update 7 --now --at-checkpoint steps=3", "--now"},
      {"list --actve", "unknown option --actve; did you mean --active?"},
      {"list -x", "unknown option -x; muster list --help lists them"},
      {"list extra", "muster list takes no argument extra in this place"},
      {"run base.yml --ranks", "--ranks needs a value"},
      {"run base.yml --ranks two", "--ranks: 'two' is not a whole number from 1 to"},
      {"run base.yml --ranks 0", "--ranks: '0' is not a whole number from 1 to"},
      {"run steps=3", "missing config before steps=3"},
      {"run ''", "the path of the config is empty"},
      {"config show ''", "the path of the config is empty"},
      {"config show -- python3 train.py",
       "python3 train.py: only command lines of MaxText/train.py, paxml.main"},
      {"config show -- python3 MaxText/train.py base.yml --steps 3",
       "--steps: nothing to train: give a base.yml and key=value (MaxText)"},
      {"run -- ./no-such-program", "there is no program "},
      {"run --ranks 2 --", "no program after --: muster run -- COMMAND"},
      {"list --coordinator host:99999", "--coordinator=host:99999: port '99999' is not a number"},
      {"list --coordinator host:0", "--coordinator=host:0: port 0 cannot be connected to"},
      {"list --coordinator host", "--coordinator=host: the port is missing; expected host:port"},
      {"list --coordinator ''", "--coordinator=: the port is missing"},
      {"list --coordinator :7070", "--coordinator=:7070: the host is missing"},
      {"list --coordinator http://host:7070", "--coordinator=http://host:7070: "},
      {"run --ranks 2 bash train.sh", "bash: this is a shell, a script or a launcher"},
      {"run bash scripts/run_pile_singlenode.sh /data /vocab",
       "bash: this script calls muster itself; start it without muster run: bash "
       "scripts/run_pile_singlenode.sh …; "},
      {"run ./run_llama_boolq.sh",
       "./run_llama_boolq.sh: this script calls muster itself; start it without muster run: bash "
       "./run_llama_boolq.sh; "},
      {"run sbatch slurm/example_slurm.sub",
       "sbatch: this script calls muster itself; start it without muster run: sbatch "
       "slurm/example_slurm.sub; "},
      {"run python3 scripts/download_the_pile.py --mirror x",
       "python3: this script calls muster itself; start it without muster run: python3 "
       "scripts/download_the_pile.py …; "},
      {"run base.yml --ranks 2 steps=3 --ranks 4", "--ranks is given twice"},
      {"run base.yml --steps 3", "unknown option --steps; did you mean steps=3? Config keys are"},
      {"submit base.yml --learning-rate=2e-3",
       "unknown option --learning-rate; did you mean learning_rate=2e-3?"},
      {"run base.yml --per_devce_batch_size --ranks 2",
       "unknown option --per_devce_batch_size; did you mean per_device_batch_size=…?"},
      {"list --steps 3", "unknown option --steps; muster list --help lists them"},
      {"run --ranks 2 seq -w 3",
       "-w follows the program seq; give programs behind --: muster run -- seq …"},
      {"decode --run here --prompt x --temperature hot", "--temperature: 'hot' is not a number"},
      {"decode --run here --prompt x",
       "--run here: no such folder; give base_output_directory/run_name"},
      {"run --env A=\xff -- true", "--env A=…: the value must be UTF-8"},
      {"run --output o\xff -- true", "--output o\\xff: must be UTF-8"},
      {"submit --working-directory /o\xff -- true", "--working-directory /o\\xff: must be UTF-8"},
      {"node admit n\xff", "NODE n\\xff: must be UTF-8"},
      {"node exclude n --reason r\xff", "--reason r\\xff: must be UTF-8"},
      {"train-tokenizer --text /proc/version --out ''", "--out=: must be a file name"},
      {"train-tokenizer --text /proc/version --out a/", "--out=a/: must be a file name"},
      {"train-tokenizer --text /proc/version --vocab-size 9999999 --out no-such/folder",
       "cannot write no-such/folder.model: No such file or directory"},
  };
  for (const auto& mistake : kMistakes) {
    const Result result = muster(mistake.arguments);
    EXPECT_EQ(result.exit_code, 2) << mistake.arguments;
    EXPECT_THAT(result.output, HasSubstr(std::string("muster: error: ") + mistake.expected));
  }
}

TEST(Commands, AWorkingDirectoryThatIsNotUtf8IsAnError) {
  const TempFolder folder;
  const std::string here = folder.file("d\xff");
  std::filesystem::create_directory(here);
  for (const std::string& words :
       {std::string("run -- true"), "run " + base_yml() + " run_name=a"}) {
    const Result result = shell("cd '" + here + "' && " + bin_dir() + "/muster " + words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, AllOf(HasSubstr("muster: error: the working directory "),
                                     HasSubstr("d\\xff: must be UTF-8")));
  }
}

TEST(Commands, HelpIsGroupedAndReadable) {
  const std::string all = muster("--help").output;
  EXPECT_THAT(all, AllOf(HasSubstr("muster [options] COMMAND"), HasSubstr("On this machine:")));
  EXPECT_EQ(muster("help").output, all);
  const std::string run = muster("run --help").output;
  EXPECT_EQ(muster("help run").output, run);
  EXPECT_THAT(run,
              AllOf(HasSubstr("--ranks N "), Not(HasSubstr("Excludes")), Not(HasSubstr("INT"))));
  EXPECT_THAT(muster("list --help").output,
              HasSubstr("share a store (default 127.0.0.1:7070, or $MUSTER_COORDINATOR)"));
  EXPECT_THAT(
      muster("train-tokenizer --help").output,
      HasSubstr("--text FILE                 UTF-8 text, one document per line (required)"));
}

TEST(Commands, Version) {
  EXPECT_EQ(muster("version").output, muster("--version").output);
  EXPECT_TRUE(nlohmann::json::parse(muster("version --json").output).contains("version"));
}

TEST(Commands, ConfigShowHasTheOriginOfValues) {
  const Result shown =
      muster("config show " + base_yml() + " model_name=llama2-tiny steps=7 --ranks 2");
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  EXPECT_THAT(shown.output, AllOf(HasSubstr("steps: 7 "), HasSubstr("# command line"),
                                  HasSubstr("llama2-tiny.yml:"), HasSubstr("fsdp=2 (2 ranks)")));
  const auto json =
      nlohmann::json::parse(muster("config show " + base_yml() + " dtype=float32 --json").output);
  EXPECT_EQ(json["settings"]["steps"]["value"], 150001);
  EXPECT_EQ(json["train_config"]["steps"], 150001);
}

// Options of the command itself before and after a pasted line, and around a `--`.
TEST(Commands, PastedLinesAmongOwnOptions) {
  for (const char* arguments :
       {"--ranks 2 --json python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-tiny "
        "steps=7",
        "--json M_STEPS=7 python3 MaxText/train.py MaxText/configs/base.yml --ranks=2",
        "--json CONFIG=Synthetic126M --ranks 2 --fdl.MAX_STEPS=7",
        "--json --ranks 2 -- python3 -m paxml.main --fdl_config=x.Synthetic126M --fdl.MAX_STEPS=7",
        "--fdl_config=x.Synthetic126M --ranks 2 --json -- steps=7",
        "--ranks 2 --json python3 -m axlearn.common.launch_trainer_main "
        "MaxText/configs/base.yml --config=fuji-test steps=7",
        "--ranks 2 --json -- MaxText/configs/base.yml steps=7"}) {
    const Result shown = muster(std::string("config show ") + arguments);
    ASSERT_EQ(shown.exit_code, 0) << arguments << shown.output;
    const auto json = nlohmann::json::parse(shown.output.substr(shown.output.find("{\n")));
    EXPECT_EQ(json["train_config"]["steps"], 7) << arguments;
    EXPECT_EQ(json["ranks_per_node"], 2) << arguments;
  }
}

TEST(Commands, VariablesWithoutEffectAreOneWarning) {
  const Result shown = muster("config show XLA_FLAGS=a python3 MaxText/train.py " + base_yml());
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.output, HasSubstr("warning: XLA_FLAGS=a has no effect: there is no XLA here"));
}

// A base.yml in the working directory is only used if it is named.
TEST(Commands, TheShippedBaseHasPrecedenceOverTheWorkingDirectory) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.file("configs"));
  write_file(folder.file("configs/base.yml"), "not_a_key: 1\n");
  const std::string in_folder = "cd " + folder.path() + "; " + bin_dir() + "/muster ";
  EXPECT_EQ(shell(in_folder + "config show CONFIG=Synthetic126M").exit_code, 0);
  EXPECT_EQ(shell(in_folder + "config show CONFIG=Synthetic126M configs/base.yml").exit_code, 2);
}

TEST(Commands, CompletionScriptsNameEveryCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Result script = muster(std::string("completion ") + shell);
    EXPECT_EQ(script.exit_code, 0);
    EXPECT_THAT(script.output,
                AllOf(HasSubstr("train-tokenizer"), HasSubstr("per_device_batch_size="),
                      Not(::testing::ContainsRegex("@[A-Z]+@"))));
  }
  EXPECT_EQ(muster("completion tcsh").exit_code, 2);
}

TEST(Commands, BashCompletes) {
  const std::string script =
      "eval \"$(" + bin_dir() +
      "/muster completion bash)\"; COMP_WORDS=(muster run per_dev) COMP_CWORD=2; "
      "compopt() { :; }; _muster; echo \"${COMPREPLY[@]}\"";
  const TempFolder folder;
  const std::string path = folder.file("complete.sh");
  write_file(path, script);
  std::FILE* pipe = popen(("bash " + path + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  const std::string output(buffer.data(), std::fread(buffer.data(), 1, buffer.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_THAT(output, HasSubstr("per_device_batch_size="));
}

TEST(Commands, AMissingCoordinatorIsOneSentence) {
  const Result result = muster("list --coordinator 127.0.0.1:1");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output,
              HasSubstr("no coordinator answers at 127.0.0.1:1 (Connection refused); start"));
}

}  // namespace
}  // namespace muster::cli

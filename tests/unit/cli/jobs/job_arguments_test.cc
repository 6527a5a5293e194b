#include "cli/jobs/job_arguments.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/job/job_spec.h"
#include "common/job/limits.h"
#include "daemon/job_spec_messages.h"
#include "tests/paths.h"

namespace muster::cli {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::Pair;

// Parses a command line of a command that starts jobs.
JobArguments parse(std::vector<std::string> words, std::string* error = nullptr) {
  JobArguments arguments;
  CLI::App command;
  add_config_arguments(command, arguments, true);
  add_node_options(command, arguments, "--nodes");
  add_recovery_options(command, arguments);
  add_program_options(command, arguments);
  std::reverse(words.begin(), words.end());  // as CLI11 requires them
  try {
    command.parse(words);
  } catch (const CLI::ParseError& problem) {
    if (error == nullptr) throw;
    *error = problem.what();
  }
  return arguments;
}

constexpr char kTrain[] = R"(["python3","train.py"])";

TEST(JobArguments, OptionsOfAProgramReachItsJob) {
  const JobArguments arguments =
      parse({"--program", kTrain, "--nodes", "4", "--restarts", "7", "--hang-after", "60",
             "--spares", "1", "--min-nodes", "2", "--gpus-per-rank", "3", "--env", "A=b"});
  const auto job = load_program(arguments);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->command(), ElementsAre("python3", "train.py"));
  EXPECT_EQ(job->nodes(), 4);
  EXPECT_EQ(job->restarts_max(), 7);
  EXPECT_EQ(job->hang_after_seconds(), 60);
  EXPECT_EQ(job->spares(), 1);
  EXPECT_EQ(job->min_nodes(), 2);
  EXPECT_EQ(job->gpus_per_rank(), 3);
  EXPECT_EQ(job->environment().at("A"), "b");
  EXPECT_FALSE(job->working_directory().empty());
}

// Ranks of this command's own workers inherit the variables.
TEST(JobArguments, NcclVariablesOfTheUserReachOtherWorkersRanks) {
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_ALGO", "Ring", 1);
  JobArguments arguments = parse(
      {source_dir() + "/configs/base.yml", "model_name=llama2-tiny", "--env", "NCCL_ALGO=Tree"});
  const auto submitted = load_job(arguments);
  arguments.own_workers = true;
  const auto own = load_job(arguments);
  unsetenv("NCCL_DEBUG");
  unsetenv("NCCL_ALGO");
  ASSERT_TRUE(submitted.ok() && own.ok()) << submitted.status() << own.status();
  EXPECT_EQ(submitted->spec.environment().at("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(submitted->spec.environment().at("NCCL_ALGO"), "Tree") << "--env overrides it";
  EXPECT_FALSE(own->spec.environment().contains("NCCL_DEBUG"));
}

// Returns the numbers of a program's job that differ from those without options, by field. The job
// has the maximum number of nodes, which the maximum of --segment-nodes divides.
std::map<std::string, int64_t> numbers_set_by(const std::vector<std::string>& words) {
  std::vector<std::string> all = {"--program", kTrain, "--nodes", absl::StrCat(kNodesMax)};
  const auto plain = load_program(parse(all));
  all.insert(all.end(), words.begin(), words.end());
  const auto job = load_program(parse(all));
  std::map<std::string, int64_t> numbers;
  for_each_job_field([&](const JobField& field, auto member) {
    if constexpr (std::is_integral_v<
                      std::remove_reference_t<decltype(std::declval<JobSpec&>().*member)>>) {
      const int64_t value = daemon::job_spec_from_proto(*job).*member;
      if (value != daemon::job_spec_from_proto(*plain).*member)
        numbers[std::string(field.name)] = value;
    }
  });
  return numbers;
}

TEST(JobArguments, EachOptionOfAProgramIsSetPassedOnBoundedAndRefusedForAConfig) {
  for (const ProgramOptionRow& option : program_options()) {
    const std::vector<std::string> words = {option.flag, absl::StrCat(option.max)};
    EXPECT_THAT(numbers_set_by(words), ElementsAre(Pair(_, option.max))) << option.flag;
    EXPECT_EQ(words_of_options(parse({"--program", kTrain, words[0], words[1]})), words);
    for (const int64_t value : {option.min - 1, option.max + 1}) {
      std::string error;
      parse({"--program", kTrain, option.flag, absl::StrCat(value)}, &error);
      EXPECT_EQ(error, absl::StrCat(option.flag, ": '", value, "' is not a whole number from ",
                                    option.min, " to ", option.max));
    }
    EXPECT_EQ(load_job(parse({"base.yml", words[0], words[1]})).status().message(),
              absl::StrCat(option.flag, " needs a program behind --; ", option.for_config));
  }
}

TEST(JobArguments, AProgramHasDefaults) {
  const auto job = load_program(parse({"--program", kTrain}));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->nodes() * job->ranks_per_node(), 1);
  EXPECT_EQ(job->restarts_max(), 3);
  EXPECT_EQ(job->hang_after_seconds(), 0);
  EXPECT_EQ(job->gpus_per_rank(), kGpusOfSlot);
}

TEST(JobArguments, WordsOfOptionsSubmitTheSameJobAgain) {
  const std::vector<std::string> words = {
      "--spares", "1",    "--min-nodes", "2",   "--gpus-per-rank", "0",
      "--env",    "A=b",  "--env",       "C=d", "--output",        "runs/a",
      "--name",   "mine", "--restarts",  "0",   "--hang-after",    "60"};
  std::vector<std::string> all = words;
  all.insert(all.end(), {"--nodes", "4", "--program", kTrain});
  EXPECT_EQ(words_of_options(parse(all)), words);
  EXPECT_THAT(words_of_options(parse({"--program", kTrain})), ElementsAre());
}

TEST(JobArguments, AConfigHasNoOptionsOfPrograms) {
  const auto problem = [](const std::string& flag, const std::string& value) {
    return std::string(load_job(parse({"base.yml", flag, value})).status().message());
  };
  EXPECT_EQ(problem("--name", "mine"),
            "--name needs a program behind --; for a config, set run_name=NAME");
  EXPECT_EQ(problem("--output", "out"),
            "--output needs a program behind --; for a config, set base_output_directory=FOLDER");
  EXPECT_EQ(problem("--restarts", "1"),
            "--restarts needs a program behind --; for a config, set restarts_max=N");
  EXPECT_EQ(problem("--hang-after", "60"),
            "--hang-after needs a program behind --; the trainer reports its steps");
}

}  // namespace
}  // namespace muster::cli

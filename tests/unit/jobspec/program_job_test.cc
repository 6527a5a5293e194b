#include "jobspec/program_job.h"

#include <gmock/gmock.h>

#include <string>

namespace muster::jobspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ProgramRequest request() {
  ProgramRequest wanted;
  wanted.command = {"python3", "train.py", "--lr", "1"};
  wanted.working_directory = "/home/ada";
  wanted.default_name = "train.py-now";
  wanted.user = "ada";
  return wanted;
}

TEST(ProgramJob, HasTheRequestedFields) {
  ProgramRequest wanted = request();
  wanted.nodes = 2;
  wanted.ranks_per_node = 4;
  wanted.restarts_max = 7;
  wanted.environment["PATH"] = "/opt/bin";
  const auto spec = program_job(wanted);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->command(), ElementsAre("python3", "train.py", "--lr", "1"));
  EXPECT_EQ(spec->working_directory(), "/home/ada");
  EXPECT_EQ(spec->name(), "train.py-now");
  EXPECT_EQ(spec->output_directory(), "/home/ada/train.py-now");
  EXPECT_EQ(spec->nodes() * spec->ranks_per_node(), 8);
  EXPECT_EQ(spec->restarts_max(), 7);
  EXPECT_EQ(spec->gpus_per_rank(), kGpusOfSlot);
  EXPECT_EQ(spec->environment().at("PATH"), "/opt/bin");
  EXPECT_EQ(spec->train_config_json(), "");
  EXPECT_EQ(spec->steps(), 0);
}

TEST(ProgramJob, MayContinueOnFewerNodes) {
  ProgramRequest wanted = request();
  wanted.nodes = 4;
  wanted.spares = 1;
  wanted.min_nodes = 2;
  const auto spec = program_job(wanted);
  EXPECT_EQ(spec->spares(), 1);
  EXPECT_EQ(spec->min_nodes(), 2);
  EXPECT_EQ(spec->smaller_size(), 0) << "it can have any number from there on";
  wanted.min_nodes = 5;
  EXPECT_EQ(program_job(wanted).status().message(),
            "--min-nodes 5: the job has --nodes 4, so it must be 1 to 4");
}

TEST(ProgramJob, FoldersStartInTheWorkingDirectory) {
  ProgramRequest wanted = request();
  wanted.name = "mine";
  EXPECT_EQ(program_job(wanted)->output_directory(), "/home/ada/mine");
  wanted.output_directory = "../runs/a";
  EXPECT_EQ(program_job(wanted)->output_directory(), "/home/runs/a");
  wanted.output_directory = "/scratch/a";
  EXPECT_EQ(program_job(wanted)->output_directory(), "/scratch/a");
}

TEST(ProgramJob, RejectsInvalidFolderNames) {
  for (const std::string& name :
       std::vector<std::string>{"a b", ".hidden", "a/b", std::string(200, 'x')}) {
    ProgramRequest wanted = request();
    wanted.name = name;
    EXPECT_THAT(std::string(program_job(wanted).status().message()), HasSubstr("--name ")) << name;
  }
}

TEST(ProgramJob, HasAShortNameOfTheProgram) {
  EXPECT_EQ(program_name({"python3", "-u", "/home/ada/train.py", "--lr", "1"}), "train.py");
  EXPECT_EQ(program_name({"/opt/venv/bin/python3.11", "run me.py"}), "runme.py");
  EXPECT_EQ(program_name({"./train.sh", "x"}), "train.sh");
  EXPECT_EQ(program_name({"bash"}), "bash");
  EXPECT_EQ(program_name({"sh", "-c", std::string(500, 'x')}), "sh");
  EXPECT_EQ(program_name({"../.."}), "program");
  EXPECT_EQ(program_name({"bin/.hidden"}), "hidden");
  EXPECT_LE(program_name({std::string(500, 'x')}).size(), 64U);
}

}  // namespace
}  // namespace muster::jobspec

#include "jobspec/program_job.h"

#include <gmock/gmock.h>

#include <string>

#include "common/job/gpu.h"

namespace muster::jobspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kDefaultName[] = "train.py-now";

v1::JobSpec request() {
  v1::JobSpec wanted = program_defaults();
  for (const char* word : {"python3", "train.py", "--lr", "1"}) wanted.add_command(word);
  wanted.set_working_directory("/home/ada");
  wanted.set_user("ada");
  return wanted;
}

TEST(ProgramJob, HasTheRequestedFields) {
  v1::JobSpec wanted = request();
  wanted.set_nodes(2);
  wanted.set_ranks_per_node(4);
  wanted.set_restarts_max(7);
  (*wanted.mutable_environment())["PATH"] = "/opt/bin";
  const auto spec = program_job(wanted, kDefaultName);
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
  v1::JobSpec wanted = request();
  wanted.set_nodes(4);
  wanted.set_spares(1);
  wanted.set_min_nodes(2);
  const auto spec = program_job(wanted, kDefaultName);
  EXPECT_EQ(spec->spares(), 1);
  EXPECT_EQ(spec->min_nodes(), 2);
  EXPECT_EQ(spec->smaller_size(), 0) << "it can have any number from there on";
  wanted.set_min_nodes(5);
  EXPECT_EQ(program_job(wanted, kDefaultName).status().message(),
            "--min-nodes 5: the job has --nodes 4, so it must be 1 to 4");
}

TEST(ProgramJob, SegmentsDivideTheNodes) {
  v1::JobSpec wanted = request();
  wanted.set_nodes(4);
  wanted.set_segment_nodes(2);
  EXPECT_EQ(program_job(wanted, kDefaultName)->segment_nodes(), 2);
  wanted.set_segment_nodes(3);
  EXPECT_EQ(program_job(wanted, kDefaultName).status().message(),
            "--segment-nodes 3: the job has --nodes 4, so it must be a divisor of 4");
}

TEST(ProgramJob, FoldersStartInTheWorkingDirectory) {
  v1::JobSpec wanted = request();
  wanted.set_name("mine");
  EXPECT_EQ(program_job(wanted, kDefaultName)->output_directory(), "/home/ada/mine");
  wanted.set_output_directory("../runs/a");
  EXPECT_EQ(program_job(wanted, kDefaultName)->output_directory(), "/home/runs/a");
  wanted.set_output_directory("/scratch/a");
  EXPECT_EQ(program_job(wanted, kDefaultName)->output_directory(), "/scratch/a");
}

TEST(ProgramJob, RejectsInvalidFolderNames) {
  for (const std::string& name :
       std::vector<std::string>{"a b", ".hidden", "a/b", std::string(200, 'x')}) {
    v1::JobSpec wanted = request();
    wanted.set_name(name);
    EXPECT_THAT(std::string(program_job(wanted, kDefaultName).status().message()),
                HasSubstr("--name "))
        << name;
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

#include "cli/slurm/slurm_script.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "cli/slurm/slurm_step.h"

namespace muster::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST(ShellWord, QuotesAnyCharacters) {
  EXPECT_EQ(shell_word("base_emb_dim=32"), "base_emb_dim=32");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("a $b `c` \"d\" \\"), "'a $b `c` \"d\" \\'");
  EXPECT_EQ(shell_word("[8,1,1]"), "'[8,1,1]'");
}

TEST(SlurmScript, HasTheFormOfSbatchAndTheShell) {
  const ScriptPlan plan{.job_name = "my \"job\"",
                        .account = "acct",
                        .partition = "part",
                        .qos = "",
                        .time = "4:00:00",
                        .dependency = "singleton",
                        .nodes = 9,
                        .gpus_per_node = 8,
                        .chain = 3,
                        .signal_seconds = 300,
                        .keeps_failed_nodes = true,
                        .exclusive = true,
                        .output_folder = "/shared/100% it",
                        .more = {"--constraint=h100"},
                        .command = {"/opt/muster", "slurm", "run", "run_name=it's"}};
  const auto script = slurm_script(plan);
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_EQ(*script, R"(#!/bin/bash
# By muster slurm submit. Submit it again with sbatch to resume the run from its newest checkpoint.
#SBATCH --job-name="my \"job\""
#SBATCH --account=acct
#SBATCH --partition=part
#SBATCH --time=4:00:00
#SBATCH --dependency=singleton
#SBATCH --nodes=9
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --no-kill
#SBATCH --signal=B:USR1@300
#SBATCH --array=1-3%1
#SBATCH --output="/shared/100%% it/slurm-%A_%a.out"
#SBATCH --constraint=h100

exec /opt/muster slurm run 'run_name=it'\''s'
)");
}

TEST(SlurmScript, RequestsAProcessorPerRankOnSharedNodes) {
  const auto script = slurm_script({.exclusive = false, .tasks_per_node = 4, .command = {"true"}});
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_THAT(*script, HasSubstr("#SBATCH --ntasks-per-node=4\n"));
  EXPECT_THAT(*script, Not(HasSubstr("--mem")));
  EXPECT_THAT(*script, Not(HasSubstr("--exclusive")));
}

TEST(SignalLead, LeavesAnAllocationMostOfItsTime) {
  EXPECT_EQ(limit_seconds("5"), 300);
  EXPECT_EQ(limit_seconds("5:30"), 330);
  EXPECT_EQ(limit_seconds("4:00:00"), 14'400);
  EXPECT_EQ(limit_seconds("1-0"), 86'400);
  EXPECT_EQ(limit_seconds("1-2:30"), 95'400);
  EXPECT_EQ(limit_seconds("1-2:30:05"), 95'405);
  for (const char* text : {"", "UNLIMITED", "a", "1:2:3:4", "-5", "1-", "0", "1::2"})
    EXPECT_EQ(limit_seconds(text), std::nullopt) << text;
  EXPECT_EQ(signal_lead(300, "5"), 75);
  EXPECT_EQ(signal_lead(300, "4:00:00"), 300);
  EXPECT_EQ(signal_lead(300, ""), 300);
  EXPECT_EQ(signal_lead(0, "5"), 0);
}

TEST(SbatchWords, AreSplitAsBySbatch) {
  const std::pair<const char*, std::vector<std::string>> lines[] = {
      {"--constraint=h100", {"--constraint=h100"}},
      {"  -p part\t-t 5 ", {"-p", "part", "-t", "5"}},
      {"--comment=\"a b#c\"", {"--comment=a b#c"}},
      {"--comment='x \"y\"'", {"--comment=x \"y\""}},
      {"--comment=\"q \\\"z\\\" \\\\ w\"", {"--comment=q \"z\" \\ w"}},
      {"--comment=a\"b c\"d", {"--comment=ab cd"}},
      {"--comment=a#b --qos=x", {"--comment=a"}},
      {"--comment=a\\#b", {"--comment=a#b"}},
      {"--comment=''", {"--comment="}},
      {"''", {""}},
      {"# nothing", {}}};
  for (const auto& [line, words] : lines) {
    const auto got = split_sbatch_line(line);
    ASSERT_TRUE(got.ok()) << line;
    EXPECT_EQ(*got, words) << line;
  }
  for (const char* line : {"--comment=\"a", "--comment='a b", "\"\\"})
    EXPECT_THAT(split_sbatch_line(line).status().message(), HasSubstr("unclosed quote")) << line;
}

TEST(SbatchCommand, RepeatsOptionsThatVariablesOverrideAndPutsExtraOptionsLast) {
  const auto words = sbatch_command({.job_name = "it's",
                                     .partition = "part",
                                     .time = "4:00:00",
                                     .more = {"--partition=other", "-t 5 --comment='a b'"}},
                                    "/a b.sub");
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_THAT(*words,
              testing::ElementsAre("sbatch", "--parsable", "--job-name=it's", "--partition=part",
                                   "--time=4:00:00", "--partition=other", "-t", "5",
                                   "--comment=a b", "/a b.sub"));
}

TEST(SlurmScript, RejectsLineEndsInOptions) {
  EXPECT_FALSE(slurm_script({.job_name = "a\n#SBATCH --uid=0", .command = {"true"}}).ok());
  EXPECT_FALSE(slurm_script({.more = {"--mem=0\nrm -rf /"}, .command = {"true"}}).ok());
  EXPECT_FALSE(slurm_script({.more = {"--comment=\"a"}, .command = {"true"}}).ok());
}

TEST(SrunCommand, StartsAWorkerOnEachNode) {
  StepPlan plan{.nodes = 4,
                .program = "/opt/muster bin/muster",
                .coordinator = "10.0.0.1:7070",
                .slots = 8,
                .leave_seconds = 600,
                .log_folder = "/shared/out/muster/0001"};
  auto words = srun_command(plan);
  EXPECT_EQ(words.front(), "srun");
  for (const char* word : {"--nodes=4", "--ntasks=4", "--ntasks-per-node=1", "--no-kill",
                           "--mpi=none", "--export=ALL", "/opt/muster bin/muster", "10.0.0.1:7070"})
    EXPECT_THAT(words, Contains(word));
  EXPECT_THAT(words, Not(Contains(HasSubstr("container"))));
  EXPECT_THAT(words, Not(Contains("--insecure")));
  EXPECT_THAT(words, Not(Contains(HasSubstr("metrics-port"))));

  plan.container = "image.sqsh";
  plan.mounts = {"/opt:/opt", "/shared:/shared"};
  plan.working_directory = "/shared";
  plan.gpus_per_node = 8;
  plan.insecure = true;
  words = srun_command(plan);
  for (const char* word :
       {"--container-image=image.sqsh", "--container-mounts=/opt:/opt,/shared:/shared",
        "--container-workdir=/shared", "--gpus-per-node=8", "--insecure"})
    EXPECT_THAT(words, Contains(word));

  plan.insecure = false;
  plan.trusted_network = true;
  plan.metrics_port = 0;
  plan.scrape_folder = "/shared/prometheus";
  plan.cluster = "test-12";
  plan.trust = {.tls_ca = "/ca", .tls_cert = "/cert", .tls_key = "/key", .token_file = "/token"};
  words = srun_command(plan);
  for (const char* word :
       {"--trusted-network", "--metrics-port=0", "--metrics-folder=/shared/prometheus",
        "--metrics-cluster=test-12", "--tls-ca=/ca", "--tls-cert=/cert", "--tls-key=/key",
        "--token-file=/token",
        "--container-mounts=/opt:/opt,/shared:/shared,/ca:/ca,/cert:/cert,/key:/key,/token:/token"})
    EXPECT_THAT(words, Contains(word));
}

}  // namespace
}  // namespace muster::cli

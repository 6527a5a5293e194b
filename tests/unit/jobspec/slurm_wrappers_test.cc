// The training command of each wrapper in slurm/, on the mesh of its table of published figures. A
// rank's memory must fit into 80 GiB.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "tests/unit/jobspec/pasted_lines.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::jobspec {
namespace {

constexpr double kDeviceBytes = 80.0 * (1 << 30);

struct Case {
  const char* script;
  const char* variables;
  int32_t nodes;
  const char* mesh;  // ranks along data, fsdp, tensor
  const char* arguments = "";
};

class SlurmWrappers : public PastedLines {
 protected:
  // Returns the command that the wrapper passes to muster, with 8 ranks on each node.
  std::vector<std::string> command_of(const Case& wanted) {
    const std::string folder = folder_.string();
    const std::string muster = write(
        "bin/muster", absl::StrCat("#!/bin/sh\nprintf '%s\\n' \"$@\" > ", folder, "/words\n"));
    std::filesystem::permissions(muster, std::filesystem::perms::owner_all);
    const std::string line = absl::StrCat(
        "env PATH=/usr/bin:/bin MUSTER_BIN_DIR=", folder, "/bin BASE_WORKSPACE_DIR=", folder,
        " STAGE_PATH=", folder, " SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=", wanted.nodes,
        " GPUS_PER_NODE=8 ", wanted.variables, " bash ", source_dir(), "/slurm/", wanted.script,
        " ", wanted.arguments, " > /dev/null 2>&1");
    EXPECT_EQ(std::system(line.c_str()), 0) << line;
    std::vector<std::string> words;
    std::ifstream file(folder_ / "words");
    for (std::string word; std::getline(file, word);) words.push_back(word);
    return words;
  }

  absl::StatusOr<ResolvedJob> job_of(const Case& wanted) {
    std::vector<std::string> command = command_of(wanted);
    const auto config = std::ranges::find_if(command, [](const std::string& word) {
      return word.ends_with("base.yml") || word.starts_with("CONFIG=");
    });
    if (config == command.end()) return absl::NotFoundError("no training command");
    std::vector<std::string> keys(config, command.end());
    if (keys.front().starts_with("CONFIG="))
      return pasted(absl::StrJoin(keys, " "), 8, wanted.nodes);
    keys.erase(keys.begin());
    LaunchOptions launch = options();
    launch.ranks_per_node = 8;
    launch.nodes = wanted.nodes;
    return resolve(keys, launch);
  }
};

// The meshes are those of the tables of MaxText, Pax and the Llama 2 recipe. LLaMA 70B has none for
// training from scratch.
TEST_F(SlurmWrappers, FitIntoADeviceOnTheirTablesMeshes) {
  for (const Case& wanted : std::vector<Case>{
           {"launch.sh", "DTYPE=bf16", 8, "1 64 1"},
           {"launch.sh", "DTYPE=fp8", 8, "1 64 1"},
           {"launch.sh", "DTYPE=bf16", 16, "1 128 1"},
           {"launch.sh", "DTYPE=bf16", 32, "1 256 1"},
           {"launch.sh", "DTYPE=bf16", 64, "4 128 1"},
           {"launch.sh", "DTYPE=fp8", 256, "16 128 1"},
           {"launch.sh", "DTYPE=bf16", 72, "1 576 1"},
           {"example_slurm.sub", "PREC=bfloat16", 1, "1 8 1"},
           {"example_slurm_pile.sub", "PREC=bfloat16", 8, "64 1 1"},
           {"launch_base_script.sub", "CONFIG=Synthetic126M PREC=bfloat16", 8, "64 1 1"},
           {"launch_base_script.sub", "CONFIG=Synthetic5B PREC=bfloat16", 32, "1 256 1"},
           {"launch_base_script.sub", "CONFIG=Synthetic5B PREC=bfloat16", 16, "1 128 1"},
           {"launch_base_script.sub", "CONFIG=Synthetic175B PREC=bfloat16", 32, "1 256 1"},
           {"launch_base_script.sub", "CONFIG=GLaM126M64E PREC=bfloat16", 8, "1 64 1"},
           {"launch_base_script.sub", "CONFIG=GLaM64B64E PREC=bfloat16", 64, "1 64 8"},
           {"example_slurm_llama.sub", "CONFIG=LLaMA7B PREC=bfloat16", 2, "1 16 1"},
           {"example_slurm_llama.sub", "CONFIG=LLaMA13B PREC=bfloat16", 8, "1 64 1"},
           {"example_slurm_llama.sub", "CONFIG=LLaMA70B PREC=bfloat16", 8, "1 64 1"}}) {
    SCOPED_TRACE(absl::StrCat(wanted.script, " ", wanted.variables, " on ", wanted.nodes));
    const auto job = job_of(wanted);
    ASSERT_TRUE(job.ok()) << job.status();
    const auto size = [&](MeshAxis axis) { return job->mesh.group_size({.axes = {axis}}); };
    EXPECT_EQ(absl::StrCat(size(MeshAxis::kData), " ", size(MeshAxis::kFsdp), " ",
                           size(MeshAxis::kTensor)),
              wanted.mesh);
    // The copy for writing checkpoints is in the host's memory.
    const auto plan = trainer::plan_training(job->train, /*threads=*/1, trainer::Staging::kNo);
    EXPECT_LT(static_cast<double>(plan.memory().total_bytes()), kDeviceBytes);
  }
}

TEST_F(SlurmWrappers, SparesDoNotCountAsGroups) {
  for (const char* arguments : {"--spares 1", "--spares=1", "--nodes 64", "--nodes=64"})
    EXPECT_THAT(command_of({"launch.sh", "DTYPE=bf16", 65, "", arguments}),
                testing::Contains("dcn_fsdp_parallelism=16"))
        << arguments;
  EXPECT_THAT(command_of({"launch.sh", "DTYPE=bf16", 64, "", "--spares 1"}),
              testing::Contains("dcn_fsdp_parallelism=-1"));
}

TEST_F(SlurmWrappers, AGivenMeshOverridesThePresets) {
  const auto job = pasted("CONFIG=Synthetic5B --fdl.DCN_MESH_SHAPE=[32,1,1]", 8, 32);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->mesh.group_size({.axes = {MeshAxis::kData}}), 32);
}

}  // namespace
}  // namespace muster::jobspec

// Errors for meshes that do not work, and proof that the proposed ones do.
#include "jobspec/mesh/mesh_keys.h"

#include <gmock/gmock.h>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Keys = std::vector<std::string>;

constexpr char kProposal[] = "as many ranks would do with ";

Keys operator+(Keys keys, const Keys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

class MeshKeys : public ConfigFiles {
 protected:
  static LaunchOptions launch(int32_t nodes, int32_t ranks) {
    LaunchOptions launch = options();
    launch.nodes = nodes;
    launch.ranks_per_node = ranks;
    return launch;
  }

  // Returns the keys of each mesh that an error proposes.
  static std::vector<Keys> proposals(const std::string& error) {
    const size_t begin = error.find(kProposal);
    if (begin == std::string::npos) return {};
    std::vector<Keys> proposals;
    for (const auto& mesh :
         absl::StrSplit(error.substr(begin + sizeof kProposal - 1), ", or with "))
      proposals.push_back(absl::StrSplit(mesh, ' '));
    return proposals;
  }

  // Expects `mesh` to be rejected with `why` on this many ranks, and each proposed mesh to train
  // `job`.
  static void expect_proposals(const Keys& job, const Keys& mesh, const std::string& why,
                               int32_t ranks, int32_t nodes = 1) {
    const std::string error = error_of(resolve(job + mesh, launch(nodes, ranks)));
    EXPECT_THAT(error, HasSubstr(why));
    const std::vector<Keys> meshes = proposals(error);
    EXPECT_THAT(meshes, Not(IsEmpty())) << error;
    for (const Keys& proposed : meshes) {
      // Users append the proposal to their line.
      const auto resolved = resolve(job + mesh + proposed, launch(nodes, ranks));
      EXPECT_TRUE(resolved.ok()) << error << "\n" << resolved.status();
    }
  }
};

const Keys kTiny = {"model_name=llama2-tiny", "steps=1"};

TEST_F(MeshKeys, ProposedMeshesFitTheModel) {
  expect_proposals(kTiny, {"ici_tensor_parallelism=3"}, "base_num_query_heads is 8", 6);
  expect_proposals(kTiny, {"ici_sequence_parallelism=16"}, "it shares out heads", 16);
  expect_proposals(kTiny, {"ici_context_parallelism=3"}, "max_target_length is 256", 6);
  expect_proposals(kTiny, {"ici_expert_parallelism=2"}, "the model has no experts", 4);
  expect_proposals(kTiny, {"ici_pipeline_parallelism=3"}, "base_num_decoder_layers is 4", 6);
  expect_proposals(kTiny, {"dcn_expert_parallelism=2", "dcn_data_parallelism=1"}, "no experts", 4,
                   2);
}

TEST_F(MeshKeys, ProposedMeshesHaveAsManyRanks) {
  expect_proposals(kTiny, {"ici_fsdp_parallelism=2", "ici_tensor_parallelism=3"},
                   "the degrees multiply to 6 but there are 8 ranks per node", 8);
  expect_proposals(kTiny, {"ici_fsdp_parallelism=-1", "ici_tensor_parallelism=3"},
                   "cannot be divided by 3", 8);
  expect_proposals(kTiny, {"ici_fsdp_parallelism=-1", "ici_tensor_parallelism=-1"}, "are both -1",
                   8);
  expect_proposals(kTiny, {"ici_tensor_parallelism=0"}, "must be at least 1", 8);
  expect_proposals(kTiny, {"dcn_fsdp_parallelism=16"}, "1 node cannot be divided by 16", 8);
  expect_proposals(kTiny, {"ici_fsdp_parallelism=8", "ici_tensor_parallelism=4"}, "multiply to 32",
                   8);
}

// On the proposed meshes sequences are whole, and so are micro-batches and groups of experts.
TEST_F(MeshKeys, ProposedMeshesFitTheBatch) {
  expect_proposals(kTiny + Keys{"per_device_batch_size=0.25"}, {"ici_tensor_parallelism=16"},
                   "base_num_query_heads is 8", 16);
  expect_proposals(kTiny + Keys{"per_device_batch_size=0.5"}, {"ici_fsdp_parallelism=4"},
                   "4 ranks would share 2 sequences", 4);
  expect_proposals(kTiny + Keys{"global_batch_size=6"}, {"ici_fsdp_parallelism=4"},
                   "must be a multiple of the 4 ranks", 4);
  expect_proposals(kTiny + Keys{"per_device_batch_size=0.5", "num_pipeline_microbatches=2"},
                   {"ici_pipeline_parallelism=2", "ici_fsdp_parallelism=2"},
                   "2 micro-batches must divide", 4);
  expect_proposals(kTiny + Keys{"per_device_batch_size=1", "num_experts=4", "num_experts_per_tok=2",
                                "router_style=pax", "num_groups=2"},
                   {"ici_expert_parallelism=4"}, "num_groups is 2", 4);
  expect_proposals({"model_name=llama2-tiny", "steps=1", "num_experts=4", "num_experts_per_tok=2",
                    "router_style=pax", "num_groups=6"},
                   {"ici_expert_parallelism=3"}, "num_experts is 4", 6);
}

TEST_F(MeshKeys, ProposedMeshesFitTheQuantization) {
  expect_proposals(kTiny + Keys{"quantization=fp8"}, {"ici_tensor_parallelism=8"},
                   "set quantization= or", 8);
}

// An error that no mesh of as many ranks can fix is not attributed to the mesh.
TEST_F(MeshKeys, RanksOfAnOpenMeshAreTheGpusOfTheNode) {
  LaunchOptions launch = options();
  launch.node_gpus = 8;
  EXPECT_EQ(resolve({}, launch)->mesh.ranks(), 8);
  EXPECT_EQ(resolve({"ici_fsdp_parallelism=2"}, launch)->mesh.ranks(), 2);
  launch.gpus_per_rank = 2;
  EXPECT_EQ(resolve({}, launch)->mesh.ranks(), 4);
  launch.gpus_per_rank = 0;
  EXPECT_EQ(resolve({}, launch)->mesh.ranks(), 8);
  launch.ranks_per_node = 3;
  EXPECT_EQ(resolve({}, launch)->mesh.ranks(), 3);
}

TEST_F(MeshKeys, NodesOfAnOpenMeshAreThoseOfTheOptionsOrTheKeys) {
  const auto nodes = [](const Keys& keys, std::optional<int32_t> given) {
    return nodes_of_open_mesh(load(keys)->settings, given);
  };
  EXPECT_EQ(nodes({}, std::nullopt), 1);
  EXPECT_EQ(nodes({}, 4), 4);
  EXPECT_EQ(nodes({"dcn_data_parallelism=3"}, std::nullopt), 3);
  EXPECT_EQ(nodes({"ici_fsdp_parallelism=2"}, 4), std::nullopt);
  EXPECT_EQ(nodes({"ici_fsdp_parallelism=2", "ici_data_parallelism=-1"}, 4), 4);
}

TEST_F(MeshKeys, NoMeshIsProposedForOtherErrors) {
  for (const Keys& mistake : {Keys{"learning_rate=-1"}, Keys{"per_device_batch_size=0.3"}}) {
    EXPECT_THAT(error_of(resolve(kTiny + mistake, launch(1, 8))),
                AllOf(HasSubstr(mistake.front().substr(0, 8)), Not(HasSubstr(kProposal))));
  }
}

}  // namespace
}  // namespace muster::jobspec

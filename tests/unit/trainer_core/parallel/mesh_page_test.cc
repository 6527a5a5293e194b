// The groups on the progress pages of a mesh of nearly all axes.
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"
#include "trainer_core/rank/group_peers.h"

namespace muster::trainer {
namespace {

// Groups of data, sequence and context, for which this mesh has no threads: data, data#1, sequence
// and context#2.
constexpr int kGroupsOfOtherAxes = 4;

// Covers experts, a tied embedding on both ends of a ring of three stages, KV heads on runs of
// tensor ranks, sums over tensors, and the groups of saving and leaving.
TEST(MeshPage, EveryGroupHasItsOwnSlotAndName) {
  TrainConfig config = config_of(sharded_glam(), mesh({{MeshAxis::kPipeline, 3},
                                                       {MeshAxis::kFsdp, 2},
                                                       {MeshAxis::kExpert, 2},
                                                       {MeshAxis::kTensor, 4}}));
  config.model.num_layers = 6;
  config.model.qkv_bias = true;
  config.per_device_batch_size = 1;
  config.optimizer.type = OptimizerType::kAdafactor;
  config.steps = 1;
  const Mesh mesh = mesh_of(config.mesh);
  const LocalWorld world(mesh.ranks(), std::chrono::minutes(5));
  std::vector<float> params(MeshTrainer::parameters_of(config));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto page = ProgressWriter::anonymous({.rank = rank, .world_size = mesh.ranks()});
      ProcessGroups groups(world.join(rank), mesh, page.get());
      ASSERT_TRUE(groups.everyone().barrier("begin").ok());
      ASSERT_TRUE(MeshTrainer::run_rank(config, groups, params).status.ok());
      for (const int channel : {kCheckpointChannel, kLeaveChannel})
        ASSERT_TRUE(GroupPeers::of_writers(groups, channel)->gather("").ok());
      std::set<std::string> names;
      const ProgressPage& shown = page->page();
      for (uint32_t i = 0; i < shown.group_count; ++i) names.insert(shown.groups[i].name.data());
      EXPECT_EQ(names.size(), shown.group_count) << "two groups of one name";
      EXPECT_LE(shown.group_count + kGroupsOfOtherAxes, static_cast<size_t>(kProgressGroupsMax));
      groups.for_each([&](const ProcessGroup& group) {
        if (group.busy() > Duration::zero() && group.size() > 1) {
          EXPECT_TRUE(names.contains(group.name())) << "rank " << rank << ": " << group.name();
        }
      });
      ASSERT_TRUE(groups.everyone().barrier("end").ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace muster::trainer

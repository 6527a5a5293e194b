// A rank that disagrees is named before the first step, with the difference.
#include "trainer_core/startup/agreement.h"

#include <gmock/gmock.h>

#include <sstream>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/on_mesh.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/startup/frozen_parameters.h"
#include "trainer_core/startup/initial_parameters.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns each rank's status for its config.
std::vector<std::string> messages_of(const std::vector<TrainConfig>& configs) {
  const LocalWorld world(static_cast<int>(configs.size()), std::chrono::milliseconds(20'000));
  std::vector<std::string> printed(configs.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < configs.size(); ++rank) {
    threads.emplace_back([&, rank] {
      ProcessGroups groups(world.join(static_cast<int>(rank)), mesh_of(configs[rank].mesh),
                           nullptr);
      printed[rank] = std::string(check_same_config(groups, configs[rank]).message());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return printed;
}

TEST(Agreement, TheFirstDifferingKeyAndRankAreNamedOnAllRanks) {
  const TrainConfig config = tiny_config(4);
  EXPECT_THAT(messages_of({config, config, config, config}), Each(IsEmpty()));
  TrainConfig other = config, third = config;
  other.optimizer.learning_rate = 0.5;
  third.steps = 7;
  EXPECT_THAT(messages_of({config, config, other, third}),
              Each(AllOf(HasSubstr("rank 2 has another config than rank 0: "),
                         HasSubstr("learning_rate is 0.003 there and 0.5 here"),
                         HasSubstr("every rank needs the same file"))));
}

// Ranks with different meshes have only the group of all ranks in common.
TEST(Agreement, ADifferentMeshDoesNotHang) {
  const TrainConfig config = tiny_config(4);
  TrainConfig other = config;
  other.mesh.ici = {2, 1, 2, 1, 1, 1, 1};
  EXPECT_THAT(messages_of({config, config, config, other}),
              Each(HasSubstr("rank 3 has another config than rank 0: ici_")));
}

class FrozenParameters : public testing::TestWithParam<WeightType> {};
INSTANTIATE_TEST_SUITE_P(Types, FrozenParameters,
                         testing::Values(WeightType::kPlain, WeightType::kNf4, WeightType::kInt8));

TEST_P(FrozenParameters, AnOtherOneIsNamed) {
  TrainConfig config = tiny_config(2);
  config.mesh.ici = {2, 1, 1, 1, 1, 1, 1};
  config.model.lora = {.rank = 2, .alpha = 2, .targets = {"q_proj"}, .weight_type = GetParam()};
  for (const bool disturbed : {false, true}) {
    std::vector<std::string> printed(2);
    std::string name;
    on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) {
      // Ranks may have different numbers of threads.
      RankModel rank_model(config, 1 + 3 * groups.rank(), Staging::kNo, groups);
      const auto& sharding = rank_model.plan().model.sharding;
      const Tensor frozen = rank_model.model().frozen_parameters();
      draw_parameters(rank_model.ops(), config, sharding.layout, rank_model.model().parameters());
      draw_base(config, rank_model, 1);
      if (disturbed && groups.rank() == 1 && GetParam() != WeightType::kPlain) {
        // A scale of NF4; a code of int8 that sets no scale.
        const ShardPiece& piece = sharding.quantized.pieces().back();
        const WeightBlocks block = rank_model.weight_blocks().at(piece.offset, kWeightBlock);
        if (GetParam() == WeightType::kNf4) {
          rank_model.ops().fill(block.scales, 3);
        } else {
          auto* const codes = static_cast<int8_t*>(block.codes.data);
          int8_t* const code =
              std::find_if(codes, codes + kWeightBlock, [](int8_t x) { return std::abs(x) < 100; });
          *code = static_cast<int8_t>(*code + 1);
        }
        name = sharding.quantized.table()[piece.param].name;
      } else if (disturbed && groups.rank() == 1) {
        const ShardPiece& piece = sharding.frozen.pieces().front();
        rank_model.ops().fill(tensor_at(frozen, piece.offset, {1}), 3);
        name = sharding.frozen.table()[piece.param].name;
      }
      printed[static_cast<size_t>(groups.rank())] =
          std::string(check_agreement(groups, 7, rank_model).message());
    });
    if (disturbed) {
      EXPECT_THAT(printed,
                  Each(HasSubstr("rank 1 starts with other parameters than rank 0: " + name)));
    } else {
      EXPECT_THAT(printed, Each(IsEmpty()));
    }
  }
}

// On a mesh of shards the ranks along data have the same state: one element on one of them differs.
TEST(Agreement, TheFirstParameterIsNamed) {
  TrainConfig config = tiny_config(4);
  config.mesh.ici = {2, 1, 2, 1, 1, 1, 1};
  for (const bool disturbed : {false, true}) {
    std::vector<std::string> printed(4);
    on_mesh(mesh_of(config.mesh), [&](ProcessGroups& groups) {
      RankModel rank_model(config, 1, Staging::kNo, groups);
      const ShardLayout& layout = rank_model.plan().model.sharding.layout;
      draw_parameters(rank_model.ops(), config, layout, rank_model.model().params());
      if (disturbed && groups.rank() == 3) {
        const ShardPiece& piece = layout.pieces()[layout.pieces().size() / 2];
        rank_model.model().params()[static_cast<size_t>(piece.offset)] += 1;
        printed[0] = layout.table()[piece.param].name;
      }
      const auto status = check_agreement(groups, 7, rank_model);
      if (groups.rank() != 0 || !disturbed)
        printed[static_cast<size_t>(groups.rank())] = std::string(status.message());
    });
    if (!disturbed) {
      EXPECT_THAT(printed, Each(IsEmpty()));
      continue;
    }
    const std::string name = printed[0];
    printed.erase(printed.begin());
    EXPECT_THAT(printed,
                Each(HasSubstr("rank 3 starts with other parameters than rank 1: " + name)));
  }
}

}  // namespace
}  // namespace muster::trainer

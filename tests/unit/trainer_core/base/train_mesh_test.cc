#include "trainer_core/base/train_mesh.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

using testing::HasSubstr;

constexpr auto kData = static_cast<size_t>(MeshAxis::kData);
constexpr auto kTensor = static_cast<size_t>(MeshAxis::kTensor);
constexpr auto kFsdp = static_cast<size_t>(MeshAxis::kFsdp);

std::string problem(const MeshShape& shape) { return std::string(validate_mesh(shape).message()); }

TEST(TrainMesh, DegreesAreAtLeastOneAndNotTooManyInAll) {
  for (size_t axis = 0; axis < kMeshAxisCount; ++axis) {
    const std::string name(kMeshAxisNames[axis]);
    MeshShape inside, between;
    inside.ici[axis] = -1;
    between.dcn[axis] = 0;
    EXPECT_EQ(problem(inside), "ici_" + name + "_parallelism is -1, but must be at least 1");
    EXPECT_EQ(problem(between), "dcn_" + name + "_parallelism is 0, but must be at least 1");
  }
  MeshShape huge;
  huge.ici[kData] = huge.ici[kFsdp] = 1 << 20;
  EXPECT_THAT(problem(huge), HasSubstr("too many ranks"));
}

std::string problem_of_model(const TrainConfig& config) {
  return std::string(validate_on_mesh(config).message());
}

TEST(TrainMesh, NamesTheConflictsOfATensorAxis) {
  TrainConfig config;
  config.model = {.vocab_size = 96,
                  .emb_dim = 12,
                  .num_layers = 1,
                  .num_query_heads = 12,
                  .num_kv_heads = 6,
                  .head_dim = 4,
                  .mlp_dim = 5};
  config.max_target_length = 24;
  config.mesh.ici[kTensor] = 2, config.mesh.dcn[kTensor] = 3;
  config.model.mlp_dim = 6;
  EXPECT_EQ(problem_of_model(config), "");
  config.model.mlp_dim = 5;
  EXPECT_THAT(problem_of_model(config),
              HasSubstr("times dcn_tensor_parallelism is 6, but base_mlp_dim is 5"));
  config.mesh.dcn[kTensor] = 1, config.mesh.ici[kTensor] = 4;
  EXPECT_THAT(problem_of_model(config),
              HasSubstr("ici_tensor_parallelism is 4, but base_num_kv_heads is 6"));
  config.mesh.ici[kTensor] = 3;
  config.model.vocab_size = 2;
  EXPECT_THAT(problem_of_model(config),
              HasSubstr("ici_tensor_parallelism is 3, but vocab_size is 2"));
  config.model.vocab_size = 96;
  config.model.quantization.type = QuantizationType::kInt8;
  EXPECT_EQ(problem_of_model(config), "");
  config.model.num_kv_heads = 1;
  EXPECT_THAT(problem_of_model(config),
              HasSubstr("quantization is int8, but base_num_kv_heads is 1 on 3 tensor ranks"));
  config.mesh.ici[kTensor] = 1;
  EXPECT_EQ(problem_of_model(config), "");
}

// Also where fsdp has a part between nodes, so that neighbouring ranks do not have neighbouring
// slices.
TEST(TrainMesh, SlicesOfABatchAreInTheOrderOfCoordinates) {
  MeshShape shape;
  shape.ici[kData] = 2, shape.ici[kFsdp] = 2, shape.dcn[kFsdp] = 2;
  const Mesh mesh = mesh_of(shape);
  ASSERT_EQ(mesh.to_string(), "data=2 fsdp=4");
  std::vector<bool> seen(8);
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    const BatchSlice slice = batch_slice(mesh, rank);
    const MeshCoordinate coordinate = mesh.coordinate(rank);
    EXPECT_EQ(slice.index, coordinate[kData] * 4 + coordinate[kFsdp]);
    EXPECT_EQ(slice.count, 8);
    seen[static_cast<size_t>(slice.index)] = true;
  }
  EXPECT_THAT(seen, testing::Each(true));
}

}  // namespace
}  // namespace muster::trainer

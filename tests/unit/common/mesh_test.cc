#include "common/mesh.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;

using Degrees = std::array<int32_t, kMeshAxisCount>;

// Every way to write `size` as an ordered product of seven degrees.
std::vector<Degrees> factorisations(int32_t size) {
  std::vector<Degrees> result;
  Degrees degrees{};
  std::function<void(size_t, int32_t)> fill = [&](size_t axis, int32_t left) {
    if (axis + 1 == kMeshAxisCount) {
      degrees[axis] = left;
      result.push_back(degrees);
      return;
    }
    for (int32_t degree = 1; degree <= left; ++degree) {
      if (left % degree != 0) continue;
      degrees[axis] = degree;
      fill(axis + 1, left / degree);
    }
  };
  fill(0, size);
  return result;
}

TEST(Mesh, EveryFactorisationIsAMesh) {
  for (const int32_t nodes : {1, 2, 6}) {
    for (const int32_t ranks_per_node : {1, 4, 12}) {
      for (const Degrees& dcn : factorisations(nodes)) {
        for (const Degrees& ici : factorisations(ranks_per_node)) {
          const auto mesh = Mesh::resolve({ici, dcn}, nodes, ranks_per_node);
          ASSERT_TRUE(mesh.ok()) << mesh.status();
          ASSERT_EQ(mesh->ranks(), nodes * ranks_per_node);
          int32_t product = 1;
          for (size_t axis = 0; axis < kMeshAxisCount; ++axis)
            product *= mesh->degree(static_cast<MeshAxis>(axis));
          ASSERT_EQ(product, mesh->ranks());
        }
      }
    }
  }
}

TEST(Mesh, AnAxisMayGoOverBothLevels) {
  MeshShape shape;
  shape.ici[0] = 2;
  shape.dcn[0] = 2;
  const auto mesh = Mesh::resolve(shape, 2, 2);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh->degree(MeshAxis::kData), 4);
}

TEST(Mesh, MinusOneIsFilledInOnEachLevelAndOnEachAxis) {
  for (size_t axis = 0; axis < kMeshAxisCount; ++axis) {
    MeshShape shape;
    shape.ici[axis] = -1;
    shape.ici[(axis + 1) % kMeshAxisCount] = 4;
    shape.dcn[axis] = -1;
    const auto mesh = Mesh::resolve(shape, 3, 8);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->shape().ici[axis], 2);
    EXPECT_EQ(mesh->shape().dcn[axis], 3);
  }
}

TEST(Mesh, MinusOneMayBecomeOne) {
  MeshShape shape;
  shape.ici[0] = 4;
  shape.ici[2] = -1;
  const auto mesh = Mesh::resolve(shape, 1, 4);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh->shape().ici[2], 1);
}

struct BadMesh {
  MeshShape shape;
  int32_t nodes, ranks_per_node;
  std::vector<std::string> said;
};

TEST(Mesh, ErrorsNameTheKeysAndBothNumbers) {
  const int32_t huge = std::numeric_limits<int32_t>::max();
  const std::vector<BadMesh> cases = {
      {{{2, 1, 1, 1, 1, 1, 3}, {1, 1, 1, 1, 1, 1, 1}},
       1,
       4,
       {"ici_data_parallelism=2", "ici_tensor_parallelism=3", "6", "4 ranks per node"}},
      {{{1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}}, 1, 4, {"ici_*_parallelism=1", "4", "-1"}},
      {{{-1, 1, 3, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}},
       1,
       4,
       {"ici_fsdp_parallelism=3", "4 ranks per node cannot be divided by 3"}},
      {{{-1, -1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}},
       1,
       4,
       {"ici_data_parallelism", "ici_pipeline_parallelism", "both -1"}},
      {{{4, 1, 1, 1, 1, 1, 1}, {1, 1, 0, 1, 1, 1, 1}},
       1,
       4,
       {"dcn_fsdp_parallelism=0", "at least 1"}},
      {{{4, 1, 1, -2, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}}, 1, 4, {"ici_sequence_parallelism=-2"}},
      {{{4, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 2, 1, 1}},
       3,
       4,
       {"dcn_context_parallelism=2", "3 nodes"}},
      {{{huge, huge, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}}, 1, 4, {"too large"}},
      {{}, 0, 4, {"0 nodes"}},
      {{}, 1, -1, {"-1 ranks"}},
      {{}, huge, huge, {"too many ranks"}},
  };
  for (const BadMesh& bad : cases) {
    const auto mesh = Mesh::resolve(bad.shape, bad.nodes, bad.ranks_per_node);
    ASSERT_FALSE(mesh.ok()) << bad.said[0];
    EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : bad.said) {
      EXPECT_THAT(std::string(mesh.status().message()), HasSubstr(part));
    }
  }
}

TEST(Mesh, ShowsTheAxesThatMatter) {
  MeshShape shape;
  shape.ici = {2, 1, 1, 1, 1, 1, 4};
  EXPECT_EQ(Mesh::resolve(shape, 1, 8)->to_string(), "data=2 tensor=4");
  EXPECT_EQ(Mesh::resolve({}, 1, 1)->to_string(), "1 rank");
}

}  // namespace
}  // namespace muster

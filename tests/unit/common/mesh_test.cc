#include "common/mesh.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
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

std::vector<int32_t> values(const std::vector<Rank>& ranks) {
  std::vector<int32_t> result;
  for (const Rank rank : ranks) result.push_back(rank.value());
  return result;
}

void expect_coordinates_are_a_bijection(const Mesh& mesh) {
  std::set<Degrees> seen;
  for (int32_t r = 0; r < mesh.ranks(); ++r) {
    const Degrees coordinates = mesh.coordinates(Rank(r));
    for (size_t axis = 0; axis < kMeshAxisCount; ++axis) {
      ASSERT_GE(coordinates[axis], 0);
      ASSERT_LT(coordinates[axis], mesh.degree(static_cast<MeshAxis>(axis)));
    }
    ASSERT_TRUE(seen.insert(coordinates).second) << "rank " << r << " of " << mesh.to_string();
  }
}

// Each axis's groups cover all ranks, once; a group's ranks are in coordinate order and agree elsewhere.
void expect_groups_partition_ranks(const Mesh& mesh) {
  for (size_t axis = 0; axis < kMeshAxisCount; ++axis) {
    const auto name = static_cast<MeshAxis>(axis);
    std::vector<int> times_seen(static_cast<size_t>(mesh.ranks()), 0);
    for (int32_t r = 0; r < mesh.ranks(); ++r) {
      const std::vector<Rank> group = mesh.group(name, Rank(r));
      ASSERT_EQ(static_cast<int32_t>(group.size()), mesh.degree(name));
      Degrees mine = mesh.coordinates(Rank(r));
      ASSERT_EQ(group[static_cast<size_t>(mine[axis])], Rank(r));
      for (size_t i = 0; i < group.size(); ++i) {
        Degrees expected = mine;
        expected[axis] = static_cast<int32_t>(i);
        ASSERT_EQ(mesh.coordinates(group[i]), expected);
        ASSERT_EQ(values(mesh.group(name, group[i])), values(group));
      }
      for (const Rank rank : group) ++times_seen[static_cast<size_t>(rank.value())];
    }
    // Once by each member of the rank's group.
    for (const int times : times_seen) ASSERT_EQ(times, mesh.degree(name));
  }
}

TEST(Mesh, EveryFactorisationIsABijectionWhoseGroupsPartitionTheRanks) {
  for (const int32_t nodes : {1, 2, 6}) {
    for (const int32_t ranks_per_node : {1, 4, 12}) {
      for (const Degrees& dcn : factorisations(nodes)) {
        for (const Degrees& ici : factorisations(ranks_per_node)) {
          const auto mesh = Mesh::resolve({ici, dcn}, nodes, ranks_per_node);
          ASSERT_TRUE(mesh.ok()) << mesh.status();
          ASSERT_EQ(mesh->ranks(), nodes * ranks_per_node);
          expect_coordinates_are_a_bijection(*mesh);
          if (mesh->ranks() <= 24) expect_groups_partition_ranks(*mesh);
        }
      }
    }
  }
}

TEST(Mesh, IciCoordinatesOfANodeStayOnIt) {
  MeshShape shape;
  shape.ici = {1, 1, 2, 1, 1, 1, 4};
  shape.dcn = {3, 1, 1, 1, 1, 1, 1};
  const auto mesh = Mesh::resolve(shape, 3, 8);
  ASSERT_TRUE(mesh.ok());
  for (int32_t r = 0; r < 24; ++r) {
    for (const MeshAxis axis : {MeshAxis::kFsdp, MeshAxis::kTensor}) {
      for (const Rank peer : mesh->group(axis, Rank(r))) EXPECT_EQ(peer.value() / 8, r / 8);
    }
  }
  EXPECT_THAT(values(mesh->group(MeshAxis::kTensor, Rank(5))), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(values(mesh->group(MeshAxis::kFsdp, Rank(5))), ElementsAre(1, 5));
  EXPECT_THAT(values(mesh->group(MeshAxis::kData, Rank(5))), ElementsAre(5, 13, 21));
}

TEST(Mesh, AnAxisOverBothLevelsCountsNodesFirst) {
  MeshShape shape;
  shape.ici[0] = 2;
  shape.dcn[0] = 2;
  const auto mesh = Mesh::resolve(shape, 2, 2);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh->degree(MeshAxis::kData), 4);
  EXPECT_THAT(values(mesh->group(MeshAxis::kData, Rank(2))), ElementsAre(0, 1, 2, 3));
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

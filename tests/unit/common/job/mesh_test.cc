#include "common/job/mesh.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/meshes.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

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
  std::vector<std::string> printed;
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
    ASSERT_FALSE(mesh.ok()) << bad.printed[0];
    EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : bad.printed) {
      EXPECT_THAT(std::string(mesh.status().message()), HasSubstr(part));
    }
  }
}

// Counts in row-major order, as the header defines it, without the header's arithmetic.
std::vector<Degrees> places(const Degrees& degrees) {
  std::vector<Degrees> all = {Degrees{}};
  for (size_t axis = 0; axis < kMeshAxisCount; ++axis) {
    std::vector<Degrees> more;
    for (const Degrees& place : all) {
      for (int32_t i = 0; i < degrees[axis]; ++i) {
        more.push_back(place);
        more.back()[axis] = i;
      }
    }
    all = std::move(more);
  }
  return all;
}

TEST(Mesh, RanksAreCountedByNodeThenByPlace) {
  for (const Degrees& dcn : factorisations(2)) {
    for (const Degrees& ici : factorisations(12)) {
      const auto mesh = Mesh::resolve({.ici = ici, .dcn = dcn}, 2, 12);
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      int32_t rank = 0;
      for (const Degrees& node : places(dcn)) {
        for (const Degrees& local : places(ici)) {
          MeshCoordinate expected{};
          for (size_t axis = 0; axis < kMeshAxisCount; ++axis)
            expected[axis] = node[axis] * ici[axis] + local[axis];
          ASSERT_EQ(mesh->coordinate(rank), expected) << mesh->to_string() << ", rank " << rank;
          ASSERT_EQ(mesh->rank_at(expected), rank) << mesh->to_string();
          ASSERT_EQ(mesh->node_of(rank), rank / 12);
          ++rank;
        }
      }
    }
  }
}

TEST(Mesh, MembersOfAGroupDifferInItsAxesOnly) {
  for (const Degrees& ici : factorisations(8)) {
    const auto mesh = Mesh::resolve({.ici = ici, .dcn = {2, 1, 1, 1, 1, 1, 1}}, 2, 8);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    for (unsigned bits = 0; bits < 1U << kMeshAxisCount; ++bits) {
      GroupAxes axes;
      for (size_t axis = 0; axis < kMeshAxisCount; ++axis) {
        if ((bits >> axis & 1U) != 0) axes.axes = axes.axes.with(static_cast<MeshAxis>(axis));
      }
      if (ici.back() % 2 == 0) axes.tensor_run = ici.back() / 2;
      for (int32_t rank = 0; rank < mesh->ranks(); ++rank) {
        std::vector<int32_t> expected;
        for (int32_t other = 0; other < mesh->ranks(); ++other) {
          const MeshCoordinate a = mesh->coordinate(rank), b = mesh->coordinate(other);
          bool same = true;
          for (size_t axis = 0; axis + 1 < kMeshAxisCount; ++axis)
            same = same && (a[axis] == b[axis] || (bits >> axis & 1U) != 0);
          const int32_t run = axes.tensor_run > 0 ? axes.tensor_run : ici.back();
          same = same && ((bits >> (kMeshAxisCount - 1)) == 0 ? a.back() == b.back()
                                                              : a.back() / run == b.back() / run);
          if (same) expected.push_back(other);
        }
        const std::vector<int32_t> group = mesh->group(rank, axes);
        ASSERT_THAT(group, testing::UnorderedElementsAreArray(expected)) << mesh->to_string();
        ASSERT_EQ(static_cast<int32_t>(group.size()), mesh->group_size(axes));
        ASSERT_TRUE(std::ranges::is_sorted(group, {}, [&](int32_t member) {
          return mesh->coordinate(member);
        })) << mesh->to_string();
      }
    }
  }
}

TEST(Mesh, TheEndsOfAPipelineAreAGroup) {
  const auto mesh = Mesh::resolve({.ici = {1, 4, 2, 1, 1, 1, 1}}, 1, 8);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  const GroupAxes ends{.axes = {MeshAxis::kPipeline}, .pipeline_ends = true};
  EXPECT_EQ(mesh->group(1, ends), (std::vector<int32_t>{1, 7}));
  EXPECT_EQ(mesh->group(6, ends), (std::vector<int32_t>{0, 6}));
  EXPECT_EQ(mesh->group_size(ends), 2);
  const GroupAxes with_fsdp{.axes = ends.axes.with(MeshAxis::kFsdp), .pipeline_ends = true};
  EXPECT_EQ(mesh->group(0, with_fsdp), (std::vector<int32_t>{0, 1, 6, 7}));
  EXPECT_EQ(mesh->group_size(with_fsdp), 4);
}

TEST(Mesh, SetsOfAxesHaveNames) {
  EXPECT_EQ((AxisSet{MeshAxis::kContext, MeshAxis::kFsdp}.to_string()), "fsdp+context");
  EXPECT_EQ(AxisSet{}.to_string(), "none");
}

TEST(Mesh, ShowsTheAxesThatMatter) {
  MeshShape shape;
  shape.ici = {2, 1, 1, 1, 1, 1, 4};
  EXPECT_EQ(Mesh::resolve(shape, 1, 8)->to_string(), "data=2 tensor=4");
  EXPECT_EQ(Mesh::resolve({}, 1, 1)->to_string(), "1 rank");
}

}  // namespace
}  // namespace muster

#include "common/job/mesh.h"

#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/number_text.h"

namespace muster {
namespace {

using Degrees = std::array<int32_t, kMeshAxisCount>;

// Lists the keys of one level that are not 1, with their values.
std::string describe_level(std::string_view level, const Degrees& degrees) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < kMeshAxisCount; ++i) {
    if (degrees[i] == 1) continue;
    parts.push_back(absl::StrCat(mesh_key(level, static_cast<MeshAxis>(i)), "=", degrees[i]));
  }
  if (parts.empty()) return absl::StrCat("every ", av(level), "_*_parallelism=1");
  return absl::StrJoin(parts, " ");
}

// Returns "1 rank per node" or "3 nodes".
std::string size_of_level(std::string_view level, int32_t size) {
  const auto count = static_cast<uint64_t>(size);
  return level == "ici" ? absl::StrCat(counted(count, "rank"), " per node")
                        : counted(count, "node");
}

absl::Status resolve_level(std::string_view level, int32_t size, Degrees& degrees) {
  int64_t product = 1;
  std::optional<MeshAxis> open_axis;
  for (size_t i = 0; i < kMeshAxisCount; ++i) {
    const auto axis = static_cast<MeshAxis>(i);
    const int32_t degree = degrees[i];
    if (degree == -1) {
      if (open_axis) {
        return absl::InvalidArgumentError(
            absl::StrCat(mesh_key(level, *open_axis), " and ", mesh_key(level, axis),
                         " are both -1; at most one ", av(level), " axis can be filled in"));
      }
      open_axis = axis;
      continue;
    }
    if (degree < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(mesh_key(level, axis), "=", degree,
                       ": must be at least 1, or -1 to fill in what is left"));
    }
    product *= degree;
    if (product > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat(describe_level(level, degrees), ": the product is too large"));
    }
  }
  if (open_axis) {
    if (size % product != 0) {
      return absl::InvalidArgumentError(absl::StrCat(describe_level(level, degrees), ": ",
                                                     size_of_level(level, size),
                                                     " cannot be divided by ", product));
    }
    degrees[static_cast<size_t>(*open_axis)] = static_cast<int32_t>(size / product);
    return absl::OkStatus();
  }
  if (product != size) {
    return absl::InvalidArgumentError(
        absl::StrCat(describe_level(level, degrees), ": the degrees multiply to ", product,
                     " but there ", size == 1 ? "is " : "are ", size_of_level(level, size),
                     "; set one of them to -1 to fill it in"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string mesh_key(std::string_view level, MeshAxis axis) {
  return absl::StrCat(av(level), "_", av(kMeshAxisNames[static_cast<size_t>(axis)]),
                      "_parallelism");
}

std::string AxisSet::to_string() const {
  std::vector<absl::string_view> names;
  for (size_t i = 0; i < kMeshAxisCount; ++i) {
    if (contains(static_cast<MeshAxis>(i))) names.push_back(av(kMeshAxisNames[i]));
  }
  return names.empty() ? "none" : absl::StrJoin(names, "+");
}

absl::StatusOr<Mesh> Mesh::resolve(const MeshShape& shape, int32_t nodes, int32_t ranks_per_node) {
  if (nodes < 1 || ranks_per_node < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job needs at least one node and one rank per node; got ", nodes,
                     " nodes of ", ranks_per_node, " ranks"));
  }
  if (int64_t{nodes} * ranks_per_node > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(nodes, " nodes of ", ranks_per_node, " ranks: too many ranks"));
  }
  Mesh mesh;
  mesh.shape_ = shape;
  mesh.nodes_ = nodes;
  mesh.ranks_per_node_ = ranks_per_node;
  if (auto status = resolve_level("ici", ranks_per_node, mesh.shape_.ici); !status.ok()) {
    return status;
  }
  if (auto status = resolve_level("dcn", nodes, mesh.shape_.dcn); !status.ok()) return status;
  return mesh;
}

int32_t Mesh::degree(MeshAxis axis) const {
  const auto i = static_cast<size_t>(axis);
  return shape_.ici[i] * shape_.dcn[i];
}

MeshCoordinate Mesh::coordinate(int32_t rank) const {
  int32_t node = node_of(rank);
  int32_t local = rank % ranks_per_node_;
  MeshCoordinate place{};
  for (size_t axis = kMeshAxisCount; axis-- > 0;) {
    const int32_t ici = shape_.ici[axis], dcn = shape_.dcn[axis];
    place[axis] = node % dcn * ici + local % ici;
    node /= dcn;
    local /= ici;
  }
  return place;
}

int32_t Mesh::rank_at(const MeshCoordinate& coordinate) const {
  int32_t node = 0, local = 0;
  for (size_t axis = 0; axis < kMeshAxisCount; ++axis) {
    const int32_t ici = shape_.ici[axis];
    node = node * shape_.dcn[axis] + coordinate[axis] / ici;
    local = local * ici + coordinate[axis] % ici;
  }
  return node * ranks_per_node_ + local;
}

std::vector<int32_t> Mesh::coordinates_in_group(MeshAxis axis, int32_t own,
                                                const GroupAxes& axes) const {
  if (!axes.axes.contains(axis)) return {own};
  if (axis == MeshAxis::kPipeline && axes.pipeline_ends && degree(axis) > 1)
    return {0, degree(axis) - 1};
  const bool in_runs = axis == MeshAxis::kTensor && axes.tensor_run > 0;
  const int32_t count = in_runs ? axes.tensor_run : degree(axis);
  std::vector<int32_t> run(static_cast<size_t>(count));
  std::iota(run.begin(), run.end(), in_runs ? own / count * count : 0);
  return run;
}

std::vector<int32_t> Mesh::group(int32_t rank, const GroupAxes& axes) const {
  const MeshCoordinate own = coordinate(rank);
  std::vector<MeshCoordinate> members = {own};
  for (size_t i = 0; i < kMeshAxisCount; ++i) {
    std::vector<MeshCoordinate> more;
    for (const MeshCoordinate& member : members) {
      for (const int32_t place : coordinates_in_group(static_cast<MeshAxis>(i), own[i], axes)) {
        more.push_back(member);
        more.back()[i] = place;
      }
    }
    members = std::move(more);
  }
  std::vector<int32_t> ranks;
  ranks.reserve(members.size());
  for (const MeshCoordinate& member : members) ranks.push_back(rank_at(member));
  return ranks;
}

int32_t Mesh::group_size(const GroupAxes& axes) const {
  size_t size = 1;
  for (size_t i = 0; i < kMeshAxisCount; ++i)
    size *= coordinates_in_group(static_cast<MeshAxis>(i), 0, axes).size();
  return static_cast<int32_t>(size);
}

std::string Mesh::to_string() const {
  std::vector<std::string> parts;
  for (int axis = 0; axis < kMeshAxisCount; ++axis) {
    const int32_t d = degree(static_cast<MeshAxis>(axis));
    if (d > 1) parts.push_back(absl::StrCat(av(kMeshAxisNames[static_cast<size_t>(axis)]), "=", d));
  }
  return parts.empty() ? "1 rank" : absl::StrJoin(parts, " ");
}

}  // namespace muster

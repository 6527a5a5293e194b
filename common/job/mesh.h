// The device mesh: the degree of each parallelism axis, and the order of ranks along the axes. Pure
// arithmetic.
//
// Each axis has two degrees, by MaxText's names: `ici_<axis>_parallelism` inside a node and
// `dcn_<axis>_parallelism` between nodes. Axes are listed outermost first. A rank is
//
//   rank = node_index * ranks_per_node + local_index
//
// where node_index runs over the dcn degrees and local_index over the ici degrees, both row-major
// with the last axis (tensor) fastest. An axis's coordinate is dcn_coordinate * ici_degree +
// ici_coordinate.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster {

enum class MeshAxis : uint8_t { kData, kPipeline, kFsdp, kSequence, kContext, kExpert, kTensor };

constexpr int kMeshAxisCount = 7;
constexpr std::array<std::string_view, kMeshAxisCount> kMeshAxisNames = {
    "data", "pipeline", "fsdp", "sequence", "context", "expert", "tensor"};

// Returns the config key of an axis's degree, "ici_tensor_parallelism", for level "ici" or "dcn".
std::string mesh_key(std::string_view level, MeshAxis axis);

// A rank's coordinate along each axis.
using MeshCoordinate = std::array<int32_t, kMeshAxisCount>;

// A subset of the axes.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<MeshAxis> axes) {
    for (const MeshAxis axis : axes) bits_ |= bit(axis);
  }

  constexpr bool contains(MeshAxis axis) const { return (bits_ & bit(axis)) != 0; }
  static constexpr AxisSet all() {
    AxisSet all;
    all.bits_ = (1U << kMeshAxisCount) - 1;
    return all;
  }
  constexpr AxisSet with(MeshAxis axis) const {
    AxisSet more = *this;
    more.bits_ |= bit(axis);
    return more;
  }
  constexpr AxisSet without(MeshAxis axis) const {
    AxisSet less = *this;
    less.bits_ &= ~bit(axis);
    return less;
  }
  // Returns the names of the axes, outermost first ("fsdp+context"), or "none".
  std::string to_string() const;

  friend constexpr auto operator<=>(const AxisSet&, const AxisSet&) = default;

 private:
  static constexpr unsigned bit(MeshAxis axis) { return 1U << static_cast<unsigned>(axis); }

  unsigned bits_ = 0;
};

// A kind of process group: the ranks of a group differ only in their coordinates along `axes`.
// `tensor_run` restricts the tensor axis to runs of this many neighbouring ranks, such as the ranks
// that share a KV head; it must divide the axis's degree; 0: the complete axis. `pipeline_ends`
// restricts the pipeline axis to its first and last stage, which share a tied embedding; ranks of
// other stages have no such group.
struct GroupAxes {
  AxisSet axes;
  int32_t tensor_run = 0;
  bool pipeline_ends = false;

  friend constexpr auto operator<=>(const GroupAxes&, const GroupAxes&) = default;
};

// Degrees as the user writes them: at least 1; one degree per level may be -1, and Mesh::resolve()
// computes it.
struct MeshShape {
  std::array<int32_t, kMeshAxisCount> ici{1, 1, 1, 1, 1, 1, 1};
  std::array<int32_t, kMeshAxisCount> dcn{1, 1, 1, 1, 1, 1, 1};

  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

// A valid mesh: every degree is at least 1 and ranks() does not overflow. Immutable and cheap to
// copy.
class Mesh {
 public:
  // Replaces each level's -1 so that the ici degrees multiply to `ranks_per_node` and the dcn
  // degrees to `nodes`. Returns InvalidArgument with the keys that disagree and both numbers.
  static absl::StatusOr<Mesh> resolve(const MeshShape& shape, int32_t nodes,
                                      int32_t ranks_per_node);

  int32_t nodes() const { return nodes_; }
  int32_t ranks_per_node() const { return ranks_per_node_; }
  int32_t ranks() const { return nodes_ * ranks_per_node_; }
  int32_t degree(MeshAxis axis) const;
  const MeshShape& shape() const { return shape_; }

  // Convert between a rank and its coordinate along each axis. Require a rank in [0, ranks()), and
  // coordinates below the degrees of their axes.
  MeshCoordinate coordinate(int32_t rank) const;
  int32_t rank_at(const MeshCoordinate& coordinate) const;
  int32_t node_of(int32_t rank) const { return rank / ranks_per_node_; }

  // Returns the ranks of `rank`'s group, `rank` included, in order of coordinates, last axis
  // fastest: the same list for each member. All groups of one GroupAxes have the same size and are
  // disjoint. Requires a rank that belongs to such a group.
  std::vector<int32_t> group(int32_t rank, const GroupAxes& axes) const;
  int32_t group_size(const GroupAxes& axes) const;

  // Returns the axes whose degree is above 1, outermost first ("data=2 tensor=4"), or "1 rank" if
  // all degrees are 1.
  std::string to_string() const;

 private:
  Mesh() = default;

  // Returns the coordinates along `axis` in the group of a rank whose own coordinate is `own`.
  std::vector<int32_t> coordinates_in_group(MeshAxis axis, int32_t own,
                                            const GroupAxes& axes) const;

  MeshShape shape_;
  int32_t nodes_ = 1;
  int32_t ranks_per_node_ = 1;
};

}  // namespace muster

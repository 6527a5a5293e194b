// The device mesh: how many ranks each parallelism axis has, and in which order ranks stand along them. Pure arithmetic.
//
// Each axis has two degrees, by MaxText's names: `ici_<axis>_parallelism` inside a node and
// `dcn_<axis>_parallelism` between nodes. Axes are listed outermost first. A rank is
//
//     rank = node_index * ranks_per_node + local_index
//
// where node_index runs over the dcn degrees and local_index over the ici degrees, both row-major with
// the last axis (tensor) fastest. An axis's coordinate is dcn_coordinate * ici_degree + ici_coordinate.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster {

enum class MeshAxis : uint8_t { kData, kPipeline, kFsdp, kSequence, kContext, kExpert, kTensor };

constexpr int kMeshAxisCount = 7;
constexpr std::array<std::string_view, kMeshAxisCount> kMeshAxisNames = {
    "data", "pipeline", "fsdp", "sequence", "context", "expert", "tensor"};

// Degrees as a user writes them: at least 1, or -1 once per level for "whatever is left".
struct MeshShape {
  std::array<int32_t, kMeshAxisCount> ici{1, 1, 1, 1, 1, 1, 1};
  std::array<int32_t, kMeshAxisCount> dcn{1, 1, 1, 1, 1, 1, 1};

  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

// A valid mesh: every degree is at least 1 and ranks() does not overflow. Immutable and cheap to copy.
class Mesh {
 public:
  // Fills in each level's -1 so that the ici degrees multiply to `ranks_per_node` and the dcn degrees to
  // `nodes`. InvalidArgument names the keys that disagree and both numbers.
  static absl::StatusOr<Mesh> resolve(const MeshShape& shape, int32_t nodes,
                                      int32_t ranks_per_node);

  int32_t nodes() const { return nodes_; }
  int32_t ranks_per_node() const { return ranks_per_node_; }
  int32_t ranks() const { return nodes_ * ranks_per_node_; }
  int32_t degree(MeshAxis axis) const;
  const MeshShape& shape() const { return shape_; }

  // "data=2 tensor=4": the axes above 1, outermost first; "1 rank" when there are none.
  std::string to_string() const;

 private:
  Mesh() = default;

  MeshShape shape_;
  int32_t nodes_ = 1;
  int32_t ranks_per_node_ = 1;
};

}  // namespace muster

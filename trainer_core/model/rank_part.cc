#include "trainer_core/model/rank_part.h"

namespace muster::trainer {

RankPart RankPart::of(const Mesh& mesh, int32_t rank) {
  const MeshCoordinate at = mesh.coordinate(rank);
  const auto coordinate = [&](MeshAxis axis) {
    return AxisCoordinate{at[static_cast<size_t>(axis)], mesh.degree(axis)};
  };
  return {.tensor = coordinate(MeshAxis::kTensor),
          .sequence = coordinate(MeshAxis::kSequence),
          .context = coordinate(MeshAxis::kContext),
          .expert = coordinate(MeshAxis::kExpert),
          .pipeline = {.stage = coordinate(MeshAxis::kPipeline)}};
}

}  // namespace muster::trainer

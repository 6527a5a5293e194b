#include "trainer_core/model/rank_part.h"

namespace muster::trainer {

RankPart RankPart::of(const Mesh& mesh, int32_t rank) {
  const MeshCoordinate at = mesh.coordinate(rank);
  const auto place = [&](MeshAxis axis) {
    return AxisPlace{at[static_cast<size_t>(axis)], mesh.degree(axis)};
  };
  return {.tensor = place(MeshAxis::kTensor),
          .sequence = place(MeshAxis::kSequence),
          .context = place(MeshAxis::kContext),
          .expert = place(MeshAxis::kExpert),
          .pipeline = {.stage = place(MeshAxis::kPipeline)}};
}

}  // namespace muster::trainer

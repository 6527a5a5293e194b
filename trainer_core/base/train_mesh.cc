#include "trainer_core/base/train_mesh.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/mesh_rules.h"

namespace muster::trainer {
namespace {

absl::Status validate_products(const ModelConfig& model, int32_t tensor) {
  if (!model.quantization.enabled() || model.num_kv_heads % tensor == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "quantization is ", av(name_of(kQuantizationNames, model.quantization.type)),
      ", but base_num_kv_heads is ", model.num_kv_heads, " on ", tensor,
      " tensor ranks: the gradient of a KV head on several ranks would be rounded in parts; "
      "set quantization= or a tensor degree that divides base_num_kv_heads"));
}

int32_t product(const std::array<int32_t, kMeshAxisCount>& degrees) {
  int32_t product = 1;
  for (const int32_t degree : degrees) product *= degree;
  return product;
}

}  // namespace

absl::Status validate_mesh(const MeshShape& shape) {
  int64_t ranks = 1;
  for (size_t axis = 0; axis < kMeshAxisNames.size(); ++axis) {
    for (const auto& [level, degree] :
         {std::pair{"ici", shape.ici[axis]}, std::pair{"dcn", shape.dcn[axis]}}) {
      if (degree < 1) {
        return absl::InvalidArgumentError(absl::StrCat(mesh_key(level, static_cast<MeshAxis>(axis)),
                                                       " is ", degree, ", but must be at least 1"));
      }
      ranks *= degree;
      if (ranks > std::numeric_limits<int32_t>::max())
        return absl::InvalidArgumentError("the mesh's degrees multiply to too many ranks");
    }
  }
  return absl::OkStatus();
}

Mesh mesh_of(const MeshShape& shape) {
  auto mesh = Mesh::resolve(shape, product(shape.dcn), product(shape.ici));
  MUSTER_CHECK(mesh.ok()) << mesh.status().message();
  return *std::move(mesh);
}

absl::Status validate_on_mesh(const TrainConfig& config) {
  const ModelConfig& model = config.model;
  const Mesh mesh = mesh_of(config.mesh);
  MeshDemands demands =
      mesh_demands(model, config.max_target_length, config.micro_batch_sequences());
  demands.micro_batches = config.micro_batches();
  demands.repeats = config.pipeline_repeats;
  const std::vector<std::string> conflicts = mesh_conflicts(demands, config.mesh);
  if (conflicts.empty()) {
    const int32_t tensor = mesh.degree(MeshAxis::kTensor);
    const absl::Status status = validate_products(model, tensor);
    return status.ok() ? check_weight_blocks(model, tensor) : status;
  }
  return absl::InvalidArgumentError(absl::StrJoin(conflicts, "; "));
}

int32_t ranks_of_slice(const Mesh& mesh) {
  return mesh.ranks() / mesh.group_size({.axes = kBatchAxes});
}

BatchSlice batch_slice(const Mesh& mesh, int32_t rank) {
  const std::vector<int32_t> slices = mesh.group(rank, {.axes = kBatchAxes});
  return {static_cast<int32_t>(std::ranges::find(slices, rank) - slices.begin()),
          static_cast<int32_t>(slices.size())};
}

}  // namespace muster::trainer

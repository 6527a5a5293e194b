#include "trainer_core/base/mesh_rules.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

using Degrees = std::array<int32_t, kMeshAxisCount>;

// The maximum number of divisions of a level: more than real meshes have. It bounds the work for
// degrees from outside.
constexpr size_t kDivisionsMax = 50'000;

constexpr char kLayers[] = "base_num_decoder_layers";

class Judge {
 public:
  Judge(const MeshDemands& demands, const MeshShape& shape) : demands_(demands), shape_(shape) {}

  std::vector<std::string> conflicts() {
    const int64_t tensor = degree(MeshAxis::kTensor), sequence = degree(MeshAxis::kSequence);
    const int64_t context = degree(MeshAxis::kContext);
    divides(MeshAxis::kTensor, demands_.query_heads, "base_num_query_heads");
    if (demands_.kv_heads % tensor != 0 && tensor % demands_.kv_heads != 0) {
      conflict(MeshAxis::kTensor, absl::StrCat("base_num_kv_heads is ", demands_.kv_heads,
                                               ": one of them must divide the other"));
    }
    const int64_t heads = demands_.query_heads / tensor;
    const int64_t kv_heads = std::max<int64_t>(demands_.kv_heads / tensor, 1);
    if (heads % sequence != 0 || kv_heads % sequence != 0) {
      conflict(MeshAxis::kSequence,
               absl::StrCat("it shares out heads, and a rank has ", heads, " query heads and ",
                            kv_heads, " KV heads", at(MeshAxis::kTensor)));
    }
    if (context > 1 && demands_.seq_len % (2 * context) != 0) {
      conflict(MeshAxis::kContext,
               absl::StrCat("max_target_length is ", demands_.seq_len,
                            ", which must be a multiple of ", 2 * context, ", twice the degree"));
    } else if (demands_.seq_len / context % sequence != 0) {
      conflict(MeshAxis::kSequence, absl::StrCat("it must divide the ", demands_.seq_len / context,
                                                 " positions of a rank", at(MeshAxis::kContext)));
    } else {
      const int64_t rows = int64_t{demands_.sequences} * demands_.seq_len / context / sequence;
      if (rows % tensor != 0) {
        conflict(MeshAxis::kTensor,
                 absl::StrCat("it must divide the ", rows, " tokens of a micro-batch on a rank (",
                              demands_.sequences, " sequences)"));
      }
    }
    if (degree(MeshAxis::kExpert) > 1 && demands_.experts <= 1) {
      conflict(MeshAxis::kExpert, "the model has no experts (num_experts=1)");
    } else {
      divides(MeshAxis::kExpert, demands_.experts, "num_experts");
    }
    judge_pipeline();
    has_units(demands_.mlp_dim, "base_mlp_dim");
    if (demands_.experts > 1) has_units(demands_.moe_mlp_dim, "base_moe_mlp_dim");
    has_units(demands_.vocab_size, "vocab_size");
    return std::move(conflicts_);
  }

 private:
  int64_t degree(MeshAxis axis) const {
    const auto i = static_cast<size_t>(axis);
    return int64_t{shape_.ici[i]} * shape_.dcn[i];
  }
  // Returns "ici_tensor_parallelism=2 times dcn_tensor_parallelism=2 (4)", without degrees of 1.
  std::string describe(MeshAxis axis) const {
    const auto i = static_cast<size_t>(axis);
    const std::string ici = mesh_key("ici", axis), dcn = mesh_key("dcn", axis);
    if (shape_.dcn[i] == 1) return absl::StrCat(ici, " is ", shape_.ici[i]);
    if (shape_.ici[i] == 1) return absl::StrCat(dcn, " is ", shape_.dcn[i]);
    return absl::StrCat(ici, " times ", dcn, " is ", degree(axis));
  }
  std::string at(MeshAxis axis) const {
    return degree(axis) > 1 ? absl::StrCat(" (", describe(axis), ")") : std::string();
  }
  void conflict(MeshAxis axis, const std::string& why) {
    conflicts_.push_back(absl::StrCat(describe(axis), ", but ", why));
  }
  void judge_pipeline() {
    const int64_t stages = degree(MeshAxis::kPipeline), repeats = demands_.repeats;
    if (stages == 1) return;
    if (repeats == 1) return divides(MeshAxis::kPipeline, demands_.layers, kLayers);
    const std::string times = absl::StrCat("num_pipeline_repeats is ", repeats, " and ");
    if (demands_.layers % (stages * repeats) != 0) {
      conflict(MeshAxis::kPipeline, absl::StrCat(times, kLayers, " is ", demands_.layers,
                                                 ", which their product must divide"));
    }
    if (demands_.micro_batches % stages != 0) {
      conflict(MeshAxis::kPipeline,
               absl::StrCat(times, "a step has ", demands_.micro_batches,
                            " micro-batches (num_pipeline_microbatches times "
                            "gradient_accumulation_steps), which it must then divide"));
    }
  }
  void divides(MeshAxis axis, int32_t whole, const char* of) {
    if (whole % degree(axis) != 0)
      conflict(axis, absl::StrCat(of, " is ", whole, ", which it must divide"));
  }
  // Adds a conflict unless every tensor rank gets a unit of a size that may be split unevenly.
  void has_units(int32_t units, const char* of) {
    if (units < degree(MeshAxis::kTensor))
      conflict(MeshAxis::kTensor, absl::StrCat(of, " is ", units, ", which must be no less"));
  }

  const MeshDemands& demands_;
  const MeshShape& shape_;
  std::vector<std::string> conflicts_;
};

// Appends every way to write `size` as a product of the degrees of a level.
void divide(int32_t size, size_t axis, Degrees& degrees, std::vector<Degrees>& all) {
  if (all.size() == kDivisionsMax) return;
  if (axis == kMeshAxisCount) {
    if (size == 1) all.push_back(degrees);
    return;
  }
  for (int32_t degree = 1; degree <= size; ++degree) {
    if (size % degree != 0) continue;
    degrees[axis] = degree;
    divide(size / degree, axis + 1, degrees, all);
  }
}

double distance(const Degrees& a, const Degrees& b) {
  double sum = 0;
  for (size_t i = 0; i < kMeshAxisCount; ++i) {
    const auto axis = static_cast<MeshAxis>(i);
    const double weight = axis == MeshAxis::kData || axis == MeshAxis::kFsdp ? 1 : 2;
    sum += weight * std::abs(std::log2(static_cast<double>(a[i]) / std::max(b[i], 1)));
  }
  return sum;
}

struct Division {
  double distance;
  Degrees degrees;
};

// Returns the divisions of a level, nearest to `requested` first; of equally near ones, that with
// larger outer axes first.
std::vector<Division> divisions(int32_t size, const Degrees& requested) {
  std::vector<Degrees> all;
  Degrees degrees{};
  divide(size, 0, degrees, all);
  std::vector<Division> sorted;
  sorted.reserve(all.size());
  for (const Degrees& division : all) sorted.push_back({distance(division, requested), division});
  std::ranges::sort(sorted, [](const Division& a, const Division& b) {
    return std::pair(a.distance, b.degrees) < std::pair(b.distance, a.degrees);
  });
  return sorted;
}

}  // namespace

MeshDemands mesh_demands(const ModelConfig& model, int32_t seq_len, int32_t sequences) {
  return {.query_heads = model.num_query_heads,
          .kv_heads = model.num_kv_heads,
          .experts = std::max(model.experts.count, 1),
          .layers = model.num_layers,
          .mlp_dim = model.mlp_dim,
          .moe_mlp_dim = model.experts.mlp_dim,
          .vocab_size = model.vocab_size,
          .seq_len = seq_len,
          .sequences = sequences};
}

std::vector<std::string> mesh_conflicts(const MeshDemands& demands, const MeshShape& shape) {
  return Judge(demands, shape).conflicts();
}

std::vector<MeshShape> nearest_meshes(int32_t nodes, int32_t ranks_per_node, const MeshShape& shape,
                                      size_t count,
                                      const std::function<bool(const MeshShape&)>& works) {
  const std::vector<Division> inside = divisions(ranks_per_node, shape.ici);
  const std::vector<Division> between = divisions(nodes, shape.dcn);
  // Pairs of divisions of both levels, ordered by the sum of their distances. When a pair is
  // removed, its successors are inserted.
  using Pair = std::tuple<double, size_t, size_t>;
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
  const auto add = [&](size_t dcn, size_t ici) {
    if (dcn < between.size() && ici < inside.size())
      pairs.push({between[dcn].distance + inside[ici].distance, dcn, ici});
  };
  add(0, 0);
  std::vector<MeshShape> meshes;
  for (int tried = 0; tried < kNearMeshesTried && !pairs.empty() && meshes.size() < count;
       ++tried) {
    const auto [distance, dcn, ici] = pairs.top();
    pairs.pop();
    if (ici == 0) add(dcn + 1, 0);
    add(dcn, ici + 1);
    const MeshShape mesh{.ici = inside[ici].degrees, .dcn = between[dcn].degrees};
    if (works(mesh)) meshes.push_back(mesh);
  }
  return meshes;
}

std::string format_mesh_keys(const MeshShape& shape) {
  std::vector<std::string> parts;
  for (const auto& [level, degrees] : {std::pair{"ici", shape.ici}, std::pair{"dcn", shape.dcn}}) {
    for (size_t i = 0; i < kMeshAxisCount; ++i) {
      if (degrees[i] == 1) continue;
      parts.push_back(absl::StrCat(mesh_key(level, static_cast<MeshAxis>(i)), "=", degrees[i]));
    }
  }
  return parts.empty() ? "every degree 1" : absl::StrJoin(parts, " ");
}

}  // namespace muster::trainer

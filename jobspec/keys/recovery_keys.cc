#include "jobspec/keys/recovery_keys.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "common/text/absl_view.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

int32_t& between_nodes(MeshShape& shape, MeshAxis axis) {
  return shape.dcn[static_cast<size_t>(axis)];
}

// Returns the mesh for this many nodes, or an error if an axis that cannot shrink prevents it.
absl::StatusOr<MeshShape> mesh_on_fewer(const MeshShape& whole, int32_t nodes) {
  MeshShape shape = whole;
  int32_t& data = between_nodes(shape, MeshAxis::kData);
  int32_t& fsdp = between_nodes(shape, MeshAxis::kFsdp);
  const int32_t product =
      std::accumulate(shape.dcn.begin(), shape.dcn.end(), 1, std::multiplies<>());
  const int32_t fixed = product / data / fsdp;
  const int32_t left = nodes / fixed;  // for data and fsdp
  if (nodes % fixed != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("only data and fsdp can shrink in the mesh between nodes, and the other axes "
                     "take ",
                     fixed, " nodes"));
  }
  if (left % fsdp == 0) {
    data = left / fsdp;
  } else if (left < fsdp) {
    data = 1;
    fsdp = left;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("dcn_fsdp_parallelism=", fsdp, " would not divide it"));
  }
  return shape;
}

int64_t slices_of(const trainer::TrainConfig& train) {
  return trainer::batch_slice(trainer::mesh_of(train.mesh), 0).count;
}

// Keeps the evaluation of the whole job: the same number of sequences, or nearly, if the ranks
// cannot share them equally.
void keep_evaluation(const trainer::TrainConfig& whole, trainer::TrainConfig& train) {
  if (train.eval.steps < 1) return;
  train.eval.steps = std::max<int64_t>(1, whole.eval.steps * slices_of(whole) / slices_of(train));
}

std::string nodes_text(int32_t nodes) {
  return absl::StrCat(nodes, nodes == 1 ? " node" : " nodes");
}

// Reads a flag that replaces a key, if the key is not set.
absl::Status take_option(const SettingsReader& reader, std::string_view key, std::string_view flag,
                         std::optional<int32_t> option, int32_t& value) {
  if (!option) return absl::OkStatus();
  if (reader.is_set_by_user(key) && value != *option) {
    return absl::InvalidArgumentError(absl::StrCat(av(flag), " ", *option, " and ", av(key), "=",
                                                   value, " disagree; give one of the two"));
  }
  value = *option;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Recovery> read_recovery(SettingsReader& reader, std::optional<int32_t> spares,
                                       std::optional<int32_t> min_nodes) {
  Recovery recovery;
  reader.read("restarts_max", recovery.restarts_max);
  reader.require(recovery.restarts_max >= 0, "restarts_max", "must be at least 0");
  reader.read("spares", recovery.spares);
  reader.require(recovery.spares >= 0 && recovery.spares <= kNodesMax, "spares",
                 absl::StrCat("must be 0 to ", kNodesMax));
  reader.read("min_nodes", recovery.min_nodes);
  reader.require(recovery.min_nodes >= 0, "min_nodes",
                 "must be at least 1, or 0: all nodes of the job");
  absl::Status status = take_option(reader, "spares", "--spares", spares, recovery.spares);
  status.Update(take_option(reader, "min_nodes", "--min-nodes", min_nodes, recovery.min_nodes));
  if (!status.ok()) return status;
  return recovery;
}

absl::StatusOr<trainer::TrainConfig> train_on_fewer(const trainer::TrainConfig& train,
                                                    int32_t nodes) {
  absl::StatusOr<MeshShape> shape = mesh_on_fewer(train.mesh, nodes);
  if (!shape.ok()) return shape.status();
  trainer::TrainConfig fewer = train;
  fewer.mesh = *shape;
  keep_evaluation(train, fewer);
  const int64_t slices = slices_of(fewer);
  const int64_t batch =
      slices_of(train) * train.per_device_batch_size * train.gradient_accumulation_steps;
  absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("the ", batch, " sequences of a step cannot be shared equally by ", slices,
                   slices == trainer::mesh_of(*shape).ranks() ? " ranks" : " groups of ranks"));
  for (int32_t sequences = train.per_device_batch_size; sequences >= 1; --sequences) {
    const int64_t together = slices * sequences;
    if (batch % together != 0 || batch / together > std::numeric_limits<int32_t>::max()) continue;
    fewer.per_device_batch_size = sequences;
    fewer.gradient_accumulation_steps = static_cast<int32_t>(batch / together);
    const absl::Status valid = trainer::validate(fewer);
    if (valid.ok()) return fewer;
    status = valid;
  }
  return status;
}

absl::Status fill_recovery(const trainer::TrainConfig& train, const Recovery& recovery,
                           v1::JobSpec& spec, std::vector<std::string>& warnings) {
  spec.set_restarts_max(recovery.restarts_max);
  spec.set_spares(recovery.spares);
  spec.set_min_nodes(recovery.min_nodes);
  const int32_t least = recovery.min_nodes, whole = spec.nodes();
  if (least == 0 || least == whole) return absl::OkStatus();
  if (least > whole) {
    return absl::InvalidArgumentError(absl::StrCat("min_nodes=", least, ": the job has ",
                                                   nodes_text(whole), ", so it must be 1 to ",
                                                   whole, ", or 0 for all"));
  }
  absl::Status why;  // for the largest size that is impossible
  int32_t would_do = 0;
  bool shards_grow = false;
  for (int32_t nodes = whole - 1; nodes >= 1 && spec.smaller_size() < kSmallerSizesMax; --nodes) {
    if (nodes < least && spec.smaller_size() > 0) break;
    const auto fewer = train_on_fewer(train, nodes);
    if (!fewer.ok()) {
      why.Update(fewer.status());
      continue;
    }
    if (nodes < least) {
      would_do = nodes;
      break;
    }
    v1::Smaller& size = *spec.add_smaller();
    size.set_nodes(nodes);
    size.set_train_config_json(trainer::to_json(*fewer).dump());
    constexpr auto kFsdp = static_cast<size_t>(MeshAxis::kFsdp);
    shards_grow = shards_grow || fewer->mesh.dcn[kFsdp] < train.mesh.dcn[kFsdp];
  }
  if (spec.smaller_size() > 0) {
    if (shards_grow) {
      warnings.push_back(
          absl::StrCat("min_nodes=", least,
                       ": fsdp shards the parameters between nodes, so that each rank holds more "
                       "on fewer nodes; check that its device has enough memory"));
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "min_nodes=", least, ": the job cannot continue with ", least, " to ", whole - 1, " of its ",
      nodes_text(whole), "; on ", whole - 1, ", ", why.message(), "; ",
      would_do > 0 ? absl::StrCat(nodes_text(would_do), " would do: min_nodes=", would_do)
                   : absl::StrCat("no smaller number is possible; leave min_nodes unset")));
}

}  // namespace muster::jobspec

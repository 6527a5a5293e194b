#include "jobspec/mesh/mesh_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "jobspec/mesh/pax_mesh.h"
#include "trainer_core/base/mesh_rules.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

// A user's per_device_batch_size overrides a preset's global_batch_size; if the user has set both,
// they must agree.
bool uses_global_batch(const SettingsReader& reader, int64_t global) {
  if (global == 0) return false;
  return reader.is_set_by_user("global_batch_size") ||
         !reader.is_set_by_user("per_device_batch_size");
}

std::string count_of_ranks(int64_t ranks) {
  return absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks");
}

// The slices that share a batch: ranks, or groups of ranks that compute one slice together.
std::string count_of_slices(const Mesh& mesh, int64_t slices) {
  if (slices == mesh.ranks()) return count_of_ranks(slices);
  return absl::StrCat(slices, " groups of ", count_of_ranks(mesh.ranks() / slices));
}

// Returns the sequences in a slice's micro-batch, which need not be a whole number.
double read_share(SettingsReader& reader, const Mesh& mesh, int64_t slices, int32_t micro_batches) {
  double batch = 12;
  reader.read("per_device_batch_size", batch);
  int64_t global = 0;
  reader.read("global_batch_size", global);
  reader.require(global >= 0, "global_batch_size", "must be at least 0");
  if (!uses_global_batch(reader, global)) return batch * mesh.ranks() / static_cast<double>(slices);
  const std::string times =
      micro_batches == 1 ? "" : absl::StrCat(" times gradient_accumulation_steps=", micro_batches);
  reader.require(global % (slices * micro_batches) == 0, "global_batch_size",
                 absl::StrCat("must be a multiple of the ", count_of_slices(mesh, slices), times));
  const double of_ranks = batch * mesh.ranks() * micro_batches;
  reader.require(
      !reader.is_set_by_user("per_device_batch_size") || of_ranks == static_cast<double>(global),
      "global_batch_size",
      absl::StrCat("per_device_batch_size=", batch, " times ", count_of_ranks(mesh.ranks()), times,
                   " is ", of_ranks, "; give one of the two"));
  return static_cast<double>(global) / static_cast<double>(slices * micro_batches);
}

// The axes that base.yml leaves open, the same as in MaxText.
constexpr MeshAxis kOpenInNode = MeshAxis::kFsdp, kOpenBetweenNodes = MeshAxis::kData;

// The degrees of one level ("ici" inside a node, "dcn" between nodes) as the user writes them.
using Degrees = std::array<int32_t, kMeshAxisCount>;

// `open` is the axis that base.yml leaves open.
void read_level(SettingsReader& reader, std::string_view level, MeshAxis open, Degrees& degrees) {
  int32_t& of_open = degrees[static_cast<size_t>(open)];
  of_open = -1;
  for (size_t i = 0; i < degrees.size(); ++i)
    reader.read(mesh_key(level, static_cast<MeshAxis>(i)), degrees[i]);
  for (size_t i = 0; i < degrees.size(); ++i) {
    const auto axis = static_cast<MeshAxis>(i);
    // If the user opens another axis, base.yml's is closed.
    if (axis != open && degrees[i] == -1 && of_open == -1 &&
        !reader.is_set_by_user(mesh_key(level, open)))
      of_open = 1;
  }
}

// Returns the number of ranks by the degrees; an open degree counts as 1.
int32_t product_of(const Degrees& degrees) {
  int64_t product = 1;
  for (const int32_t degree : degrees) {
    product = std::min<int64_t>(product * std::max(degree, 1), std::numeric_limits<int32_t>::max());
  }
  return static_cast<int32_t>(product);
}

bool is_open(const Degrees& degrees) { return std::ranges::find(degrees, -1) != degrees.end(); }

// Reads the degrees of both levels.
MeshShape read_shape(SettingsReader& reader) {
  MeshShape shape;
  read_level(reader, "ici", kOpenInNode, shape.ici);
  read_level(reader, "dcn", kOpenBetweenNodes, shape.dcn);
  return shape;
}

}  // namespace

absl::StatusOr<RequestedMesh> read_mesh(SettingsReader& reader, std::optional<int32_t> nodes,
                                        std::optional<int32_t> ranks_per_node, int32_t node_gpus) {
  RequestedMesh wanted;
  wanted.shape = read_shape(reader);
  wanted.stated = wanted.shape;
  if (!reader.status().ok()) return reader.status();
  wanted.nodes = nodes.value_or(product_of(wanted.shape.dcn));
  wanted.ranks_per_node = ranks_per_node.value_or(
      is_open(wanted.shape.ici) && node_gpus > 0 ? node_gpus : product_of(wanted.shape.ici));
  if (wanted.nodes < 1 || wanted.nodes > kNodesMax || wanted.ranks_per_node < 1 ||
      wanted.ranks_per_node > kRanksPerNodeMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        wanted.nodes, " nodes with ", wanted.ranks_per_node, " ranks each: a job has 1 to ",
        kNodesMax, " nodes and 1 to ", kRanksPerNodeMax, " ranks per node"));
  }
  return wanted;
}

std::optional<int32_t> nodes_of_open_mesh(const Settings& settings, std::optional<int32_t> nodes) {
  SettingsReader reader(settings);
  const MeshShape shape = read_shape(reader);
  if (!reader.status().ok() || !is_open(shape.ici)) return std::nullopt;
  return nodes.value_or(product_of(shape.dcn));
}

int64_t global_batch_size(const Mesh& mesh, const trainer::TrainConfig& train) {
  return int64_t{train.per_device_batch_size} * train.gradient_accumulation_steps *
         mesh.group_size({.axes = trainer::kBatchAxes});
}

void read_batch(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train) {
  reader.read("gradient_accumulation_steps", train.gradient_accumulation_steps);
  reader.require(train.gradient_accumulation_steps >= 1, "gradient_accumulation_steps",
                 "must be at least 1");
  const int64_t slices = mesh.group_size({.axes = trainer::kBatchAxes});
  const double batch =
      read_share(reader, mesh, slices, std::max(train.gradient_accumulation_steps, 1));
  const double global = batch * static_cast<double>(slices);
  const bool whole =
      batch >= 1 && batch <= std::numeric_limits<int32_t>::max() && std::floor(batch) == batch;
  const bool would_do =
      global >= 1 && global < static_cast<double>(slices) && std::floor(global) == global;
  reader.require(
      whole, "per_device_batch_size",
      absl::StrCat(
          "must be a whole number of at least 1, because a rank trains on whole sequences; ",
          count_of_slices(mesh, slices), " would share ", global, " sequences",
          would_do ? absl::StrCat(", for which ", count_of_ranks(std::llround(global)),
                                  " with 1 each would do")
                   : ""));
  if (whole) train.per_device_batch_size = static_cast<int32_t>(batch);
  reader.read("max_target_length", train.max_target_length);
}

std::string replacing_mesh(const MeshShape& near, const MeshShape& stated,
                           const Settings& settings) {
  const auto is_fixed = [](int32_t degree) { return degree != 1 && degree != -1; };
  if (is_pax_mesh(settings)) return pax_mesh_flags(near, std::ranges::any_of(stated.dcn, is_fixed));
  std::string keys = trainer::format_mesh_keys(near);
  std::string ones;
  for (const auto& [level, now, before] :
       {std::tuple{"ici", near.ici, stated.ici}, std::tuple{"dcn", near.dcn, stated.dcn}}) {
    // One -1 becomes what is left, which is 1; more are an error.
    const bool is_open_twice = std::ranges::count(before, -1) > 1;
    for (size_t i = 0; i < kMeshAxisCount; ++i) {
      const bool stays = is_fixed(before[i]) || (is_open_twice && before[i] == -1);
      if (now[i] != 1 || !stays) continue;
      absl::StrAppend(&ones, ones.empty() ? "" : " ", mesh_key(level, static_cast<MeshAxis>(i)),
                      "=1");
    }
  }
  const bool is_all_ones = near == MeshShape();
  if (ones.empty()) return keys;
  return is_all_ones ? ones : absl::StrCat(keys, " ", ones);
}

}  // namespace muster::jobspec

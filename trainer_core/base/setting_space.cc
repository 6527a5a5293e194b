#include "trainer_core/base/setting_space.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

using Degrees = std::array<int32_t, kMeshAxisCount>;

// The largest micro-batch of a slice that is tried; larger ones gain next to no speed.
constexpr int32_t kSequencesMax = 128;
// More runs per pipeline stage gain next to no speed.
constexpr std::array<int32_t, 3> kRepeats = {1, 2, 4};
// Bounds the meshes of a fleet whose number of nodes has very many factors.
constexpr size_t kMeshesMax = 4096;

constexpr const char* kBatchKey = "per_device_batch_size";
constexpr const char* kAccumulationKey = "gradient_accumulation_steps";
constexpr const char* kMicroBatchesKey = "num_pipeline_microbatches";
constexpr const char* kRepeatsKey = "num_pipeline_repeats";
constexpr const char* kLayersKey = "num_layers_per_pipeline_stage";
constexpr const char* kGlobalBatchKey = "global_batch_size";

int32_t& degree(Degrees& degrees, MeshAxis axis) { return degrees[static_cast<size_t>(axis)]; }

int32_t slices_of(const MeshShape& shape) {
  return mesh_of(shape).group_size({.axes = kBatchAxes});
}
int32_t stage_count(const MeshShape& shape) { return mesh_of(shape).degree(MeshAxis::kPipeline); }

// The key counts sequences per rank; the config those of a slice, with all its micro-batches. Has
// as many digits as the value needs, because a rounded one would be no whole number of sequences.
std::string batch_value(const TrainConfig& config) {
  const double value =
      static_cast<double>(config.per_device_batch_size) / ranks_of_slice(mesh_of(config.mesh));
  std::string text = absl::StrFormat("%g", value);
  double read = 0;
  if (absl::SimpleAtod(text, &read) && read == value) return text;
  return absl::StrFormat("%.17g", value);
}

// Calls `visit` with each assignment of degrees to `axes` whose product is `product`.
void each_level(const std::vector<MeshAxis>& axes, size_t next, int32_t product, Degrees& degrees,
                const std::function<void(const Degrees&)>& visit) {
  if (next + 1 == axes.size()) {
    degree(degrees, axes[next]) = product;
    visit(degrees);
    return;
  }
  for (int32_t part = 1; part <= product; ++part) {
    if (product % part != 0) continue;
    degree(degrees, axes[next]) = part;
    each_level(axes, next + 1, product / part, degrees, visit);
  }
}

// Returns the levels with the same number of ranks along `axes`, and the degrees of `own` along all
// other axes.
std::vector<Degrees> levels(const Degrees& own, const std::vector<MeshAxis>& axes) {
  if (axes.empty()) return {own};
  Degrees degrees = own;
  int32_t product = 1;
  for (const MeshAxis axis : axes) product *= degree(degrees, axis);
  std::vector<Degrees> found;
  each_level(axes, 0, product, degrees, [&](const Degrees& level) { found.push_back(level); });
  return found;
}

// Tensor and expert ranks exchange activations in each layer, which links between nodes are too
// slow for; stages exchange little. An axis that the config divides otherwise stays free there.
std::vector<MeshAxis> axes_of_level(const TrainConfig& config, const Degrees& own, bool in_node) {
  std::vector<MeshAxis> axes = {MeshAxis::kData, MeshAxis::kFsdp};
  const auto add = [&](MeshAxis axis, bool is_usual) {
    if (is_usual || own[static_cast<size_t>(axis)] > 1) axes.push_back(axis);
  };
  add(MeshAxis::kPipeline, !in_node);
  add(MeshAxis::kTensor, in_node);
  if (config.model.experts.count > 1) add(MeshAxis::kExpert, in_node);
  return axes;
}

int axes_that_differ(const Degrees& a, const Degrees& b) {
  int count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] ? 1 : 0;
  return count;
}

double factors_between(const MeshShape& a, const MeshShape& b) {
  double sum = 0;
  for (size_t i = 0; i < a.ici.size(); ++i) {
    sum += std::abs(std::log2(static_cast<double>(a.ici[i]) / b.ici[i]));
    sum += std::abs(std::log2(static_cast<double>(a.dcn[i]) / b.dcn[i]));
  }
  return sum;
}

bool is_adam(const TrainConfig& config) {
  return config.optimizer.type == OptimizerType::kAdamW ||
         config.optimizer.type == OptimizerType::kAdamPax;
}

template <class T, class Match>
size_t index_of(const std::vector<T>& values, const Match& match) {
  return static_cast<size_t>(std::ranges::find_if(values, match) - values.begin());
}

}  // namespace

SettingKeys setting_keys(const TrainConfig& config) {
  SettingKeys keys = {
      {kBatchKey, batch_value(config)},
      {kAccumulationKey, absl::StrCat(config.gradient_accumulation_steps)},
      {"remat_policy", std::string(name_of(kRematPolicyNames, config.remat_policy))},
      {"mu_dtype", std::string(name_of(kComputeTypeNames, config.optimizer.mu_dtype))},
      {"zero_stage", absl::StrCat(config.zero_stage)}};
  const auto add_level = [&](const char* level, const Degrees& degrees) {
    for (size_t i = 0; i < degrees.size(); ++i)
      keys.emplace_back(mesh_key(level, static_cast<MeshAxis>(i)), absl::StrCat(degrees[i]));
  };
  add_level("ici", config.mesh.ici);
  add_level("dcn", config.mesh.dcn);
  keys.emplace_back(kMicroBatchesKey, absl::StrCat(config.pipeline_microbatches));
  keys.emplace_back(kRepeatsKey, absl::StrCat(config.pipeline_repeats));
  return keys;
}

SettingKeys changed_keys(const TrainConfig& from, const TrainConfig& to) {
  const SettingKeys before = setting_keys(from), after = setting_keys(to);
  const int32_t stages = stage_count(to.mesh);
  // The keys of a pipeline are open in base.yml: the number of stages determines them.
  const bool is_new_pipeline = stages != stage_count(from.mesh);
  SettingKeys changed;
  for (size_t i = 0; i < after.size(); ++i) {
    const auto& [key, value] = after[i];
    const bool is_of_pipeline = key == kMicroBatchesKey || key == kRepeatsKey;
    if (is_of_pipeline ? stages > 1 && (is_new_pipeline || value != before[i].second)
                       : value != before[i].second)
      changed.push_back(after[i]);
    if (key == kRepeatsKey && !changed.empty() && changed.back().first == kRepeatsKey)
      changed.emplace_back(kLayersKey, absl::StrCat(to.model.num_layers / stages /
                                                    std::max(to.pipeline_repeats, 1)));
  }
  return changed;
}

std::string format_settings(const SettingKeys& keys) {
  return absl::StrJoin(keys, " ", absl::PairFormatter("="));
}

const std::vector<std::string>& searched_keys() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {kGlobalBatchKey};
    for (const auto& [key, value] : setting_keys(TrainConfig())) all.push_back(key);
    return all;
  }();
  return names;
}

SettingSpace::SettingSpace(const TrainConfig& config, const SpaceOptions& options)
    : config_(config), kept_(options.kept) {
  add_meshes(options);
  add_batches(options);
  for (size_t i = 0; i < kRematPolicyNames.size(); ++i) {
    const auto policy = static_cast<RematPolicy>(i);
    const bool is_own = policy == config.remat_policy;
    if (is_own || (policy != RematPolicy::kCustom && !keeps("remat_policy")))
      remats_.push_back(policy);
  }
  moments_ = {config.optimizer.mu_dtype};
  if (is_adam(config) && !keeps("mu_dtype")) {
    moments_.push_back(config.optimizer.mu_dtype == ComputeType::kFloat32 ? ComputeType::kBfloat16
                                                                          : ComputeType::kFloat32);
  }
  zero_stages_ = {config.zero_stage};
  for (int32_t stage = 1; stage <= 3; ++stage)
    if (stage != config.zero_stage && !keeps("zero_stage")) zero_stages_.push_back(stage);
  start_[kRemat] = index_of(remats_, [&](RematPolicy it) { return it == config.remat_policy; });
}

bool SettingSpace::keeps(std::string_view key) const {
  return std::ranges::find(kept_, key) != kept_.end();
}

void SettingSpace::add_meshes(const SpaceOptions& options) {
  const MeshShape& own = config_.mesh;
  const int32_t stages = stage_count(own), layers = config_.model.num_layers;
  meshes_.push_back({own, config_.pipeline_repeats});  // always part of the bounded list
  const auto free_axes = [&](const char* level, const Degrees& degrees, bool in_node) {
    std::vector<MeshAxis> axes = axes_of_level(config_, degrees, in_node);
    std::erase_if(axes, [&](MeshAxis axis) { return keeps(mesh_key(level, axis)); });
    return axes;
  };
  for (const Degrees& ici : levels(own.ici, free_axes("ici", own.ici, true))) {
    for (const Degrees& dcn : levels(own.dcn, free_axes("dcn", own.dcn, false))) {
      const MeshShape shape{.ici = ici, .dcn = dcn};
      const int32_t of_shape = stage_count(shape);
      if (layers % of_shape != 0 || (!options.changes_pipeline && of_shape != stages)) continue;
      std::vector<int32_t> repeats = {of_shape == stages ? config_.pipeline_repeats : 1};
      if (of_shape > 1 && options.changes_pipeline)
        repeats.insert(repeats.end(), kRepeats.begin(), kRepeats.end());
      for (const int32_t runs : repeats) {
        if (layers % (int64_t{of_shape} * runs) != 0 || meshes_.size() == kMeshesMax ||
            (runs != config_.pipeline_repeats && keeps(kRepeatsKey)))
          continue;
        const bool is_known = std::ranges::any_of(meshes_, [&](const MeshChoice& mesh) {
          return mesh.shape == shape && mesh.repeats == runs;
        });
        if (!is_known) meshes_.push_back({shape, runs});
      }
    }
  }
  for (size_t i = 1; i < meshes_.size(); ++i) nearest_meshes_.push_back(i);
  const auto distance = [&](size_t i) {
    const MeshChoice& mesh = meshes_[i];
    return std::pair(
        axes_that_differ(mesh.shape.ici, own.ici) + axes_that_differ(mesh.shape.dcn, own.dcn),
        factors_between(mesh.shape, own));
  };
  std::ranges::stable_sort(nearest_meshes_, {}, distance);
}

void SettingSpace::add_batches(const SpaceOptions& options) {
  const int32_t own = config_.micro_batch_sequences();
  std::vector<int32_t> sequences = {own};
  for (int32_t power = 1; power <= kSequencesMax; power *= 2) {
    sequences.push_back(power);
    if (power * 3 <= kSequencesMax) sequences.push_back(power * 3);
  }
  for (int32_t part = 1; part <= std::min(own, kSequencesMax); ++part)
    if (own % part == 0) sequences.push_back(part);
  for (int32_t half = own; half % 2 == 0; half /= 2) sequences.push_back(half / 2);
  std::ranges::sort(sequences);
  sequences.erase(std::ranges::unique(sequences).begin(), sequences.end());
  const bool keeps_global = options.keeps_global_batch || keeps(kGlobalBatchKey);
  for (const bool keeps_sequences : {true, false}) {
    if (!keeps_sequences && keeps_global) continue;
    for (const int32_t count : sequences) {
      if (keeps_sequences && count == own) start_[kBatch] = batches_.size();
      batches_.push_back({count, keeps_sequences});
    }
  }
  for (const bool keeps_sequences : {true, false}) {
    for (size_t i = batches_.size(); i-- > 0;)
      if (batches_[i].keeps_global == keeps_sequences && batches_[i].sequences < own)
        smaller_batches_.push_back(i);
  }
}

size_t SettingSpace::size(Dimension dimension) const {
  switch (dimension) {
    case kMesh:
      return meshes_.size();
    case kBatch:
      return batches_.size();
    case kRemat:
      return remats_.size();
    case kMoments:
      return moments_.size();
    case kZero:
      return zero_stages_.size();
    case kDimensions:
      break;
  }
  return 0;
}

size_t SettingSpace::points() const {
  size_t count = 1;
  for (size_t i = 0; i < kDimensions; ++i) count *= size(static_cast<Dimension>(i));
  return count;
}

SettingSpace::Point SettingSpace::point_at(size_t index) const {
  Point point{};
  for (size_t i = kDimensions; i-- > 0;) {
    const size_t values = size(static_cast<Dimension>(i));
    point[i] = index % values;
    index /= values;
  }
  return point;
}

bool SettingSpace::set_batch(const MeshChoice& mesh, const BatchChoice& batch,
                             TrainConfig& config) const {
  const int32_t stages = stage_count(mesh.shape), of_config = stage_count(config_.mesh);
  int64_t accumulation = config_.gradient_accumulation_steps;
  int64_t micro_batches = config_.pipeline_microbatches;
  const bool is_own =
      mesh.shape == config_.mesh && batch.sequences == config_.micro_batch_sequences();
  if (batch.keeps_global && !is_own) {
    const int64_t global =
        int64_t{config_.per_device_batch_size} * accumulation * slices_of(config_.mesh);
    const int64_t at_a_time = int64_t{slices_of(mesh.shape)} * batch.sequences;
    if (global % at_a_time != 0) return false;
    const int64_t all = global / at_a_time;
    // The trainer passes the micro-batches of all accumulation steps through the pipeline as one
    // sequence, so only their product matters.
    const bool can_keep = stages == of_config && stages > 1 && all % accumulation == 0;
    micro_batches = stages == 1 ? 1 : can_keep ? all / accumulation : all;
    accumulation = all / micro_batches;
  } else if (stages != of_config) {
    return false;  // the config's accumulation is that of another schedule
  }
  if (int64_t{batch.sequences} * micro_batches > INT32_MAX || accumulation > INT32_MAX)
    return false;
  config.gradient_accumulation_steps = static_cast<int32_t>(accumulation);
  config.pipeline_microbatches = static_cast<int32_t>(micro_batches);
  config.per_device_batch_size = static_cast<int32_t>(batch.sequences * micro_batches);
  return true;
}

std::optional<TrainConfig> SettingSpace::with_batch(const Point& point) const {
  const MeshChoice& mesh = meshes_[point[kMesh]];
  TrainConfig config = config_;
  config.mesh = mesh.shape;
  config.pipeline_repeats = mesh.repeats;
  if (!set_batch(mesh, batches_[point[kBatch]], config)) return std::nullopt;
  if (kept_.empty()) return config;
  const SettingKeys own = setting_keys(config_), keys = setting_keys(config);
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].second != own[i].second && keeps(keys[i].first)) return std::nullopt;
  return config;
}

std::optional<TrainConfig> SettingSpace::config_at(const Point& point) const {
  std::optional<TrainConfig> config = with_batch(point);
  if (!config) return std::nullopt;
  config->remat_policy = remats_[point[kRemat]];
  config->optimizer.mu_dtype = moments_[point[kMoments]];
  config->zero_stage = zero_stages_[point[kZero]];
  // Without fsdp ranks nothing is sharded.
  if (config->zero_stage != config_.zero_stage &&
      mesh_of(config->mesh).degree(MeshAxis::kFsdp) == 1)
    return std::nullopt;
  if (!validate(*config).ok()) return std::nullopt;
  return config;
}

std::optional<SettingSpace::Point> SettingSpace::with_mesh(Point point, size_t mesh) const {
  point[kMesh] = mesh;
  const BatchChoice wanted = batches_[point[kBatch]];
  for (size_t i = point[kBatch] + 1; i-- > 0;) {
    if (batches_[i].keeps_global != wanted.keeps_global) break;
    point[kBatch] = i;
    if (config_at(point)) return point;
  }
  return std::nullopt;
}

void SettingSpace::add_batch_steps(const Point& point, std::vector<Point>& found) const {
  const BatchChoice own = batches_[point[kBatch]];
  for (const bool keeps_global : {true, false}) {
    std::optional<Point> below, above;
    for (size_t i = 0; i < batches_.size(); ++i) {
      if (batches_[i].keeps_global != keeps_global || i == point[kBatch]) continue;
      Point other = point;
      other[kBatch] = i;
      const bool is_above = batches_[i].sequences > own.sequences;
      if ((is_above && above) || !config_at(other)) continue;
      (is_above ? above : below) = other;
    }
    if (below) found.push_back(*below);
    if (above) found.push_back(*above);
  }
}

std::vector<SettingSpace::Point> SettingSpace::neighbours(const Point& point) const {
  std::vector<Point> found;
  const MeshChoice& own = meshes_[point[kMesh]];
  for (size_t i = 0; i < meshes_.size(); ++i) {
    const MeshChoice& mesh = meshes_[i];
    const int in_node = axes_that_differ(mesh.shape.ici, own.shape.ici);
    const int between = axes_that_differ(mesh.shape.dcn, own.shape.dcn);
    const bool is_next =
        in_node + between == 2 || (in_node + between == 0 && mesh.repeats != own.repeats);
    if (!is_next) continue;
    if (const auto moved = with_mesh(point, i)) found.push_back(*moved);
  }
  add_batch_steps(point, found);
  for (const Dimension dimension : {kRemat, kMoments, kZero}) {
    for (size_t i = 0; i < size(dimension); ++i) {
      Point other = point;
      other[dimension] = i;
      if (i != point[dimension] && config_at(other)) found.push_back(other);
    }
  }
  return found;
}

}  // namespace muster::trainer

// The settings that change the memory and the speed of a training, but not the model: the mesh, the
// batch and its micro-batches, the remat policy, the type of Adam's first moment, and what the fsdp
// ranks shard. A search for settings that fit, or that are fast, runs over this space
// (startup/fitting_changes.h, forecast/plan_search.h). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The keys of the settings of a config, as a user types them, with their values.
using SettingKeys = std::vector<std::pair<std::string, std::string>>;

// Returns all keys of a space with the config's values. Equal keys mean equal settings.
SettingKeys setting_keys(const TrainConfig& config);
// Returns the keys that a user of `from` sets to get `to`; both are configs of one space. The words
// of format_settings() can be pasted after the words of `from`.
SettingKeys changed_keys(const TrainConfig& from, const TrainConfig& to);
// Returns "remat_policy=none per_device_batch_size=2".
std::string format_settings(const SettingKeys& keys);
// Returns the names of the keys that a search can keep: those of setting_keys(), and
// global_batch_size.
const std::vector<std::string>& searched_keys();

// The maximum of --search-limit. A search of so many settings takes some minutes for the largest
// models.
constexpr int64_t kSearchPlansMax = 100'000;

struct SpaceOptions {
  // All settings have as many sequences in a step as the config.
  bool keeps_global_batch = false;
  // Keys of searched_keys() whose values do not change.
  std::vector<std::string> kept = {};
  // False: all settings keep the config's pipeline, because the caller computes the memory of its
  // stages only.
  bool changes_pipeline = true;
};

class SettingSpace {
 public:
  // The dimensions of the space. Each has a list of values.
  enum Dimension : uint8_t { kMesh, kBatch, kRemat, kMoments, kZero, kDimensions };
  // The index of the value of each dimension.
  using Point = std::array<size_t, kDimensions>;

  // Requires a valid config. All settings have its number of nodes and of ranks per node.
  SettingSpace(const TrainConfig& config, const SpaceOptions& options);

  // Returns the point of the config's own settings.
  const Point& start() const { return start_; }
  size_t size(Dimension dimension) const;
  // Returns the number of points, of which some have no valid config.
  size_t points() const;
  // Returns point `index` of points(), the last dimension fastest.
  Point point_at(size_t index) const;
  // Returns the config of a point; nullopt if the trainer cannot run it or a kept key changes.
  std::optional<TrainConfig> config_at(const Point& point) const;
  // Returns false if no point with this mesh and batch has a config: the batch does not divide
  // evenly over the mesh, the batch keeps the config's accumulation but the mesh has another number
  // of pipeline stages, or a kept key changes. Cheaper than config_at().
  bool can_have_batch(const Point& point) const { return with_batch(point).has_value(); }
  // Returns the points with a valid config that differ from `point` in one dimension. Neighbours
  // along kMesh move a factor between two axes of one level, or change the pipeline's repeats; if
  // no config with the point's batch is valid there, they have the next smaller batch with a valid
  // one. Neighbours along kBatch have the next larger or smaller value.
  std::vector<Point> neighbours(const Point& point) const;
  // Returns the indices of all other meshes, sorted by their difference from the config's mesh:
  // first by the number of axes that differ, then by the factors moved.
  const std::vector<size_t>& nearest_meshes() const { return nearest_meshes_; }
  // Returns the indices of the batches whose micro-batch is smaller than the config's. Those that
  // keep the sequences of a step come first; within both parts, larger micro-batches come first.
  const std::vector<size_t>& smaller_batches() const { return smaller_batches_; }

 private:
  // A mesh, and the number of layer runs of each pipeline stage (num_pipeline_repeats).
  struct MeshChoice {
    MeshShape shape;
    int32_t repeats = 1;
  };
  // The number of sequences in a slice's micro-batch. If `keeps_global`, gradient accumulation is
  // chosen so that a step keeps its number of sequences; otherwise accumulation stays as in the
  // config.
  struct BatchChoice {
    int32_t sequences = 1;
    bool keeps_global = true;
  };

  void add_meshes(const SpaceOptions& options);
  void add_batches(const SpaceOptions& options);
  bool keeps(std::string_view key) const;
  bool set_batch(const MeshChoice& mesh, const BatchChoice& batch, TrainConfig& config) const;
  // Returns the config with the mesh and the batch of a point; nullopt if can_have_batch() is
  // false.
  std::optional<TrainConfig> with_batch(const Point& point) const;
  std::optional<Point> with_mesh(Point point, size_t mesh) const;
  void add_batch_steps(const Point& point, std::vector<Point>& found) const;

  TrainConfig config_;
  std::vector<std::string> kept_;
  std::vector<MeshChoice> meshes_;
  std::vector<BatchChoice> batches_;
  std::vector<RematPolicy> remats_;
  std::vector<ComputeType> moments_;
  std::vector<int32_t> zero_stages_;
  std::vector<size_t> nearest_meshes_, smaller_batches_;
  Point start_{};
};

}  // namespace muster::trainer

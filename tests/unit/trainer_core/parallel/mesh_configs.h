// Configs of small models for meshes of at most 8 ranks.
#pragma once

#include <functional>
#include <initializer_list>
#include <ostream>
#include <utility>

#include "trainer_core/base/train_config.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {

inline constexpr int32_t kSequences = 8;  // per micro-batch, over all ranks
inline constexpr int32_t kLength = 16;    // tokens per sequence
inline constexpr int32_t kMeshRanks = 8;  // ranks of the largest meshes

inline MeshShape mesh(std::initializer_list<std::pair<MeshAxis, int32_t>> degrees) {
  MeshShape shape;
  for (const auto& [axis, degree] : degrees) shape.ici[static_cast<size_t>(axis)] = degree;
  return shape;
}

inline TrainConfig config_of(const ModelConfig& model, const MeshShape& shape,
                             int32_t length = kLength) {
  TrainConfig config;
  config.model = model;
  config.model.num_layers = 3;
  // Some rows of so few elements are near 0, where a norm with a small epsilon would amplify
  // rounding errors.
  config.model.norm_epsilon = 0.1;
  config.steps = 20;
  config.optimizer.learning_rate = 3e-3;
  // Some gradients, such as those of the biases of keys, consist only of rounding errors, which a
  // small eps would amplify.
  config.optimizer.eps = 1e-5;
  config.optimizer.schedule_steps = 20;
  config.optimizer.warmup_steps = 2;
  config.mesh = shape;
  config.per_device_batch_size = kSequences / batch_slice(mesh_of(shape), 0).count;
  config.max_target_length = length;
  if (config.model.learns_positions()) config.model.trainable_position_size = length;
  return config;
}

// A model, and the change of its config under test.
struct MeshCase {
  const char* name;
  ModelConfig (*model)();
  std::function<void(TrainConfig& config)> change;

  friend void PrintTo(const MeshCase& test, std::ostream* out) { *out << test.name; }
};

}  // namespace muster::trainer

// The state of the ranks of a mesh, filled with values that identify the checkpoint from which they
// come.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/random/fnv.h"
#include "common/random/philox.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {

constexpr GroupAxes kAllButData = {.axes = AxisSet::all().without(MeshAxis::kData)};

// Returns element i of a tensor in the checkpoint of `seed`. It differs from other elements and
// from other checkpoints.
inline float number(uint64_t seed, const std::string& tensor, int64_t i) {
  return uniform_from_bits(Philox{seed, fnv1a(tensor)}(static_cast<uint64_t>(i))[0]);
}

// The state of one rank of a mesh.
struct Rank {
  Rank(const ModelConfig& model, const OptimizerConfig& config, const Mesh& mesh, int32_t rank)
      : shards(ShardLayout::of(model, mesh, rank, DType::kF32)),
        optimizer(Optimizer::make(config, shards)),
        layout(checkpoint_layout(model, shards, *optimizer)),
        params(static_cast<size_t>(shards.elements() + scaling_elements(model)), -1),
        state(static_cast<size_t>(optimizer->state_elements()), -1) {}

  CheckpointBlocks blocks() { return {params, state}; }

  // Calls visit(element in memory, its value in the checkpoint of `seed`) for each element that the
  // rank stores.
  template <class Visit>
  void for_numbers(uint64_t seed, const Visit& visit) {
    for (const auto& [part, block] : {std::pair(&layout.params, std::span(params)),
                                      std::pair(&layout.state, std::span(state))}) {
      for (const TensorBox& box : part->held) {
        const CommonRuns runs(whole_box({box.tensor, box.shape, 0}), box);
        for (int64_t run = 0; run < runs.count(); ++run) {
          const auto [from, to] = runs.at(run);
          for (int64_t i = 0; i < runs.length(); ++i) {
            visit(block[static_cast<size_t>(box.offset + to + i)],
                  number(seed, box.tensor, from + i));
          }
        }
      }
    }
  }
  void fill(uint64_t seed) {
    for_numbers(seed, [](float& here, float there) { here = there; });
  }
  bool has(uint64_t seed) {
    bool same = true;
    for_numbers(seed, [&](float here, float there) { same = same && here == there; });
    return same;
  }

  ShardLayout shards;
  std::unique_ptr<Optimizer> optimizer;
  CheckpointLayout layout;
  std::vector<float> params, state;
};

inline CheckpointInfo info_of(int64_t step) {
  return {.folder = "", .step = step, .samples = static_cast<uint64_t>(3 * step), .config = {}};
}

}  // namespace muster::trainer

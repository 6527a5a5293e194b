// Helpers for tests of checkpoints: a model of two tensors, and its state.
#pragma once

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {

// Returns the layout of the model with an optimizer that has one element per row of a matrix, and a
// vector as large as that of the model.
inline CheckpointLayout layout() {
  return {.params = ShardedTensors::whole({{"embed", {4, 3}, 0}, {"norm", {3}, 12}}),
          .optimizer = "rowwise",
          .state = ShardedTensors::whole({{"v_row.embed", {4}, 0}, {"v.norm", {3}, 4}})};
}

// The parameters and the optimizer state, filled with ascending values.
struct State {
  explicit State(float start) : params(15), state(7) {
    std::iota(params.begin(), params.end(), start);
    std::iota(state.begin(), state.end(), start + 100);
  }
  CheckpointBlocks blocks() { return {params, state}; }
  friend bool operator==(const State&, const State&) = default;

  std::vector<float> params, state;
};

inline CheckpointInfo info_of(int64_t step) {
  return {.folder = "",
          .step = step,
          .samples = static_cast<uint64_t>(step) * 8,
          .config = {{"steps", 100}}};
}

inline absl::Status save_state(const CheckpointStore& store, int64_t step, State state) {
  std::vector<std::string> notes;
  return store.save(info_of(step), layout(), state.blocks(), notes);
}

// File bytes with which a checkpoint has two files of parameters and one of state.
constexpr int64_t kFileBytes = 48;

// Returns a folder in memory if there is one, so that a thousand saves need not wait for a disk. It
// is as good as a disk for these tests, because the page cache survives a process that is killed.
inline std::filesystem::path quick_disk() {
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
}

constexpr char kModelFile[] = "model-00000-00000.safetensors";
constexpr char kOptimizerFile[] = "optimizer-00000-00000.safetensors";

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace muster::trainer

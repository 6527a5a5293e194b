// A model of two tensors, and its state.
#pragma once

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {

inline ParamSpec spec(const std::string& name, const std::vector<int64_t>& shape, int64_t offset) {
  ParamSpec row;
  row.name = name;
  row.shape = shape;
  row.offset = offset;
  return row;
}

inline std::vector<ParamSpec> table() { return {spec("embed", {4, 3}, 0), spec("norm", {3}, 12)}; }

struct State {
  explicit State(float start) : params(15), m(15), v(15) {
    std::iota(params.begin(), params.end(), start);
    std::iota(m.begin(), m.end(), start + 100);
    std::iota(v.begin(), v.end(), start + 200);
  }
  CheckpointBlocks blocks() { return {params, m, v}; }
  friend bool operator==(const State&, const State&) = default;

  std::vector<float> params, m, v;
};

inline CheckpointInfo info_of(int64_t step) {
  return {.folder = "",
          .step = step,
          .samples = static_cast<uint64_t>(step) * 8,
          .config = {{"steps", 100}}};
}

inline absl::Status save_state(const CheckpointStore& store, int64_t step, State state) {
  std::vector<std::string> notes;
  return store.save(info_of(step), table(), state.blocks(), notes);
}

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace muster::trainer

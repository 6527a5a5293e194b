// The state from which a training decides about spikes of its loss (recovery/step_guard.h).
// Checkpoints store it, so that a restart makes the same decisions:
//
//   "spikes": {"losses": [4.25, …], "grad_norms": [0.5, …], "skipped_updates": 2, "rollbacks": 1}
#pragma once

#include <cstdint>
#include <deque>

#include <nlohmann/json.hpp>

namespace muster::trainer {

struct SpikeState {
  // The losses and clipped gradient norms of the last steps, at most skip_step_interval, the oldest
  // first. Both have the same size.
  std::deque<double> losses = {};
  std::deque<double> grad_norms = {};
  int64_t skipped_updates = 0;  // completed steps whose update was not applied
  int32_t rollbacks = 0;        // returns to the newest checkpoint since it was saved

  friend bool operator==(const SpikeState&, const SpikeState&) = default;
};

inline nlohmann::json spike_json(const SpikeState& state) {
  return {{"losses", state.losses},
          {"grad_norms", state.grad_norms},
          {"skipped_updates", state.skipped_updates},
          {"rollbacks", state.rollbacks}};
}

// Reads the result of spike_json(). Throws exceptions of the JSON library, also if the lists have
// different sizes.
inline SpikeState spike_state_of(const nlohmann::json& json) {
  SpikeState state{.losses = json.at("losses").get<std::deque<double>>(),
                   .grad_norms = json.at("grad_norms").get<std::deque<double>>(),
                   .skipped_updates = json.at("skipped_updates").get<int64_t>(),
                   .rollbacks = json.at("rollbacks").get<int32_t>()};
  if (!state.losses.empty()) (void)json.at("grad_norms").at(state.losses.size() - 1);
  if (!state.grad_norms.empty()) (void)json.at("losses").at(state.grad_norms.size() - 1);
  return state;
}

}  // namespace muster::trainer

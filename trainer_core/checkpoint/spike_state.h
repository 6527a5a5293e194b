// The state from which a training decides about spikes of its loss (recovery/step_guard.h).
// Checkpoints store it, so that a restart makes the same decisions:
//
//   "spikes": {"losses": [4.25, …], "grad_norms": [0.5, …], "skipped_updates": 2,
//              "rollbacks": 1, "rollbacks_to": 84}
#pragma once

#include <cstdint>
#include <deque>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace muster::trainer {

struct SpikeState {
  // The losses and clipped gradient norms of the last steps, at most skip_step_interval, the oldest
  // first. Both have the same size.
  std::deque<double> losses = {};
  std::deque<double> grad_norms = {};
  int64_t skipped_updates = 0;  // completed steps whose update was not applied
  int32_t rollbacks = 0;        // returns to the checkpoint of step `rollbacks_to`
  int64_t rollbacks_to = -1;    // -1: there was no rollback

  friend bool operator==(const SpikeState&, const SpikeState&) = default;
};

inline nlohmann::json spike_json(const SpikeState& state) {
  return {{"losses", state.losses},
          {"grad_norms", state.grad_norms},
          {"skipped_updates", state.skipped_updates},
          {"rollbacks", state.rollbacks},
          {"rollbacks_to", state.rollbacks_to}};
}

// Reads the result of spike_json(). Throws exceptions of the JSON library, and std::length_error if
// the lists have different sizes.
inline SpikeState spike_state_of(const nlohmann::json& json) {
  SpikeState state{.losses = json.at("losses").get<std::deque<double>>(),
                   .grad_norms = json.at("grad_norms").get<std::deque<double>>(),
                   .skipped_updates = json.at("skipped_updates").get<int64_t>(),
                   .rollbacks = json.at("rollbacks").get<int32_t>(),
                   .rollbacks_to = json.at("rollbacks_to").get<int64_t>()};
  if (state.losses.size() != state.grad_norms.size())
    throw std::length_error("spikes: losses and grad_norms have different sizes");
  return state;
}

}  // namespace muster::trainer

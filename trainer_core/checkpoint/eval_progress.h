// The best evaluation of a training and the evaluations since then, which checkpoints store for
// early stopping and for the checkpoint of the best evaluation:
//
//   "evaluation": {"metric": "loss", "best": 1.25, "best_step": 120, "evaluations_since_best": 2,
//                  "evaluated_step": 160}
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace muster::trainer {

struct EvalProgress {
  std::string metric = {};             // metric_for_best_model; empty: nothing is recorded
  double best = 0;                     // the best value of the metric; finite
  int64_t best_step = -1;              // completed steps at the best evaluation; -1: none
  int64_t evaluations_since_best = 0;  // all evaluations if best_step is -1
  int64_t evaluated_step = -1;         // completed steps at the newest evaluation; -1: none

  // Returns whether the state after `step` completed steps is that of the best evaluation.
  bool is_best(int64_t step) const { return !metric.empty() && best_step == step; }

  friend bool operator==(const EvalProgress&, const EvalProgress&) = default;
};

inline nlohmann::json progress_json(const EvalProgress& progress) {
  return {{"metric", progress.metric},
          {"best", progress.best},
          {"best_step", progress.best_step},
          {"evaluations_since_best", progress.evaluations_since_best},
          {"evaluated_step", progress.evaluated_step}};
}

// Reads the field "evaluation" of a manifest. Throws exceptions of the JSON library.
inline EvalProgress eval_progress_of(const nlohmann::json& manifest) {
  const auto found = manifest.find("evaluation");
  if (found == manifest.end()) return {};
  return {.metric = found->at("metric").get<std::string>(),
          .best = found->at("best").get<double>(),
          .best_step = found->at("best_step").get<int64_t>(),
          .evaluations_since_best = found->at("evaluations_since_best").get<int64_t>(),
          .evaluated_step = found->at("evaluated_step").get<int64_t>()};
}

}  // namespace muster::trainer

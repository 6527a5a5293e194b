// Formats the forecast of a step's time as text and JSON. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "jobspec/files/calibration.h"
#include "jobspec/files/topology.h"
#include "jobspec/resolve.h"

namespace muster::cli {

// Figures that the user may state: a price, and the rate and the cost of interruptions.
struct PlanPrices {
  std::optional<double> price = {};      // per GPU-hour
  std::optional<double> kwh_price = {};  // per kWh
  // Interruptions per GPU-hour. Default: 419 in 54 days on 16,384 GPUs ("The Llama 3 Herd of
  // Models", 2024, table 5).
  double failure_rate = 419.0 / (54 * 24 * 16'384);
  // The time from an interruption to the first step after it, without the repeated steps.
  double restart_seconds = 300;
};

// A step of a job and what follows from its time.
struct StepFigures {
  double seconds = 0;
  double data_seconds = 0;        // the part of it that waits for data
  double checkpoint_seconds = 0;  // stalls at checkpoint_period, per step and beside it
  double tokens_per_second = 0;
  double tokens_per_second_per_device = 0;
  double sequences_per_second = 0;
  double mfu = 0, mfu_causal = 0;  // by both ways to count attention
  double run_days = 0;             // time for `steps` steps, without interruptions
  double gpu_hours = 0;
  std::optional<double> cost = {};
  // Energy of all steps, by the devices' measured power or, if that is unknown, their power limit.
  std::optional<double> kilowatt_hours = {};
  bool is_power_measured = false;
  double kilowatt_hours_per_device = 0;
  std::optional<double> energy_cost = {};
  // The share of the time in which steps that count are computed, despite interruptions; the
  // interval between saves, in seconds, at which it is the largest (nullopt: the rate is 0); and
  // the stall of a save.
  double effective_share = 1;
  std::optional<double> best_save_seconds = {};
  double save_stall_seconds = 0;
  double share_at_period = 1;  // the share with checkpoint_period
};

// Requires: `forecast`, the output of `muster-trainer plan`, has the part "time".
StepFigures step_figures(const jobspec::ResolvedJob& job, const jobspec::PlannedMachines& machines,
                         const nlohmann::json& forecast, const PlanPrices& prices);

// Returns how well the time is known: "calibrated: 5 steps of muster measured on NVIDIA H200,
// forecast within 7.4% on at most 1 device, links are not measured".
std::string known_from(const jobspec::PlannedMachines& machines,
                       const std::optional<jobspec::Calibration>& calibration);

// Returns the lines about the time, and the table of its parts.
std::string describe_step_time(const jobspec::ResolvedJob& job,
                               const jobspec::PlannedMachines& machines,
                               const nlohmann::json& forecast, const StepFigures& figures,
                               const std::string& known);

nlohmann::json to_json(const StepFigures& figures);

}  // namespace muster::cli

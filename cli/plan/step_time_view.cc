#include "cli/plan/step_time_view.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "cli/plan/storage_waits.h"
#include "cli/terminal/terminal.h"
#include "common/text/number_text.h"
#include "common/text/with_commas.h"
#include "jobspec/mesh/mesh_keys.h"

namespace muster::cli {
namespace {

constexpr double kSecondsPerDay = 86'400;
constexpr double kSecondsPerHour = 3600;

// The share of a run's time in which steps that count are computed, if it saves each `interval`
// seconds and is interrupted each `between` seconds on average. An interruption costs the restart
// and, on average, half of an interval (Daly, "A higher order estimate of the optimum checkpoint
// interval", 2006, first order).
double effective_share(double interval, double stall, double between, double restart) {
  const double saving = interval > 0 ? interval / (interval + stall) : 1;
  const double lost = (restart + (interval + stall) / 2) / between;
  return saving * std::max(0.0, 1 - lost);
}

std::string whole(double number) { return with_commas(std::llround(number)); }

std::string short_number(double number) {
  if (number >= 1000) return whole(number);
  return absl::StrFormat("%.3g", number);
}

// Devices seldom draw the power of their limit.
std::string energy_line(const StepFigures& figures) {
  std::string text = absl::StrFormat("  energy: %s%s kWh, %s per device, by the devices' %s",
                                     figures.is_power_measured ? "" : "at most ",
                                     short_number(*figures.kilowatt_hours),
                                     short_number(figures.kilowatt_hours_per_device),
                                     figures.is_power_measured ? "measured power" : "power limit");
  if (figures.energy_cost)
    absl::StrAppendFormat(&text, "; cost %s", short_number(*figures.energy_cost));
  return text + "\n";
}

std::string duration(double seconds) {
  if (seconds >= 2 * kSecondsPerDay) return absl::StrFormat("%.1f days", seconds / kSecondsPerDay);
  if (seconds >= 2 * kSecondsPerHour)
    return absl::StrFormat("%.1f hours", seconds / kSecondsPerHour);
  if (seconds >= 120) return absl::StrFormat("%.0f min", seconds / 60);
  return absl::StrFormat("%.3g s", seconds);
}

// Fitted steps do not test a forecast, so their error is not stated.
std::string error_of(const jobspec::Calibration& calibration) {
  if (calibration.fitted > 0 && calibration.fitted >= calibration.steps)
    return ", none of them held out";
  return absl::StrFormat(", forecast within %.1f%%", calibration.error_percent);
}

// Returns what was not measured, if a job has more devices than the measured steps.
std::string limits_of(const jobspec::PlannedMachines& machines,
                      const jobspec::Calibration& calibration) {
  const int64_t devices = calibration.devices;
  if (devices == 0 || machines.devices() <= devices) return "";
  const bool has_links = devices > 1;
  const bool has_network = devices > machines.topology.devices_per_node;
  return absl::StrCat(" on at most ", with_commas(devices), devices == 1 ? " device" : " devices",
                      !has_links ? ", links are not measured"
                      : !has_network && machines.nodes > 1
                          ? ", links between nodes are not measured"
                          : "");
}

}  // namespace

StepFigures step_figures(const jobspec::ResolvedJob& job, const jobspec::PlannedMachines& machines,
                         const nlohmann::json& forecast, const PlanPrices& prices) {
  const nlohmann::json& time = forecast["time"];
  const auto devices = static_cast<double>(machines.devices());
  const StorageWaits waits = storage_waits(job.train, machines.topology, step_seconds_of(time),
                                           forecast["checkpoint_bytes"].get<double>());
  StepFigures figures{.seconds = time["seconds"].get<double>() + waits.data_seconds,
                      .data_seconds = waits.data_seconds,
                      .checkpoint_seconds = waits.checkpoint_seconds};
  const auto sequences = static_cast<double>(jobspec::global_batch_size(job.mesh, job.train));
  figures.sequences_per_second = sequences / figures.seconds;
  figures.tokens_per_second = figures.sequences_per_second * job.train.max_target_length;
  figures.tokens_per_second_per_device = figures.tokens_per_second / devices;
  const double peak = time["peak_tflops"].get<double>();
  figures.mfu = time["tflops"].get<double>() / figures.seconds / peak;
  figures.mfu_causal = time["tflops_causal"].get<double>() / figures.seconds / peak;
  const double run_seconds = figures.seconds * static_cast<double>(job.train.steps);
  figures.run_days = run_seconds / kSecondsPerDay;
  figures.gpu_hours = run_seconds / kSecondsPerHour * devices;
  if (prices.price) figures.cost = figures.gpu_hours * *prices.price;
  const auto measured_watts = machines.topology.number("measured_power_w");
  figures.is_power_measured = measured_watts.has_value();
  const auto watts = measured_watts ? measured_watts : machines.topology.number("power_w");
  if (watts) {
    figures.kilowatt_hours = figures.gpu_hours * *watts / 1000;
    figures.kilowatt_hours_per_device = *figures.kilowatt_hours / devices;
    if (prices.kwh_price) figures.energy_cost = *figures.kilowatt_hours * *prices.kwh_price;
  }
  constexpr double kNever = 1e18;
  const double between =
      prices.failure_rate > 0 ? kSecondsPerHour / (prices.failure_rate * devices) : kNever;
  figures.save_stall_seconds = waits.save_stall_seconds;
  if (prices.failure_rate > 0) {
    // The next save waits for the end of this one, and a step has at most one.
    figures.best_save_seconds = std::max(
        {std::sqrt(2 * figures.save_stall_seconds * between), waits.save_seconds, figures.seconds});
    figures.effective_share = effective_share(
        *figures.best_save_seconds, figures.save_stall_seconds, between, prices.restart_seconds);
  }
  const double period = static_cast<double>(job.train.checkpoint_period) * figures.seconds;
  const double stall_at_period =
      std::max(figures.save_stall_seconds,
               waits.checkpoint_seconds * static_cast<double>(job.train.checkpoint_period));
  figures.share_at_period =
      effective_share(period, stall_at_period, between, prices.restart_seconds);
  return figures;
}

std::string known_from(const jobspec::PlannedMachines& machines,
                       const std::optional<jobspec::Calibration>& calibration) {
  const jobspec::Topology& topology = machines.topology;
  if (!calibration) {
    return absl::StrCat("roofline only: no step was measured on ", topology.device,
                        ", so the time may be wrong by 30% or more");
  }
  const std::string measured =
      absl::StrCat(counted(static_cast<uint64_t>(calibration->steps), "step"), " of ",
                   calibration->program, " measured on ", calibration->device,
                   error_of(*calibration), limits_of(machines, *calibration));
  if (calibration->topology == topology.name || calibration->device == topology.device)
    return absl::StrCat("calibrated: ", measured);
  return absl::StrCat("calibrated on another device: ", measured, "; none on ", topology.device);
}

std::string describe_step_time(const jobspec::ResolvedJob& job,
                               const jobspec::PlannedMachines& machines,
                               const nlohmann::json& forecast, const StepFigures& figures,
                               const std::string& known) {
  const nlohmann::json& time = forecast["time"];
  std::string text = absl::StrFormat("\nstep time: %s (%s)\n", duration(figures.seconds), known);
  absl::StrAppendFormat(&text, "  %s tokens/s, %s per device, %s sequences/s\n",
                        whole(figures.tokens_per_second),
                        short_number(figures.tokens_per_second_per_device),
                        short_number(figures.sequences_per_second));
  absl::StrAppendFormat(&text, "  MFU %.1f%%, %.1f%% with causal attention, of the %s %s TFLOP/s\n",
                        100 * figures.mfu, 100 * figures.mfu_causal,
                        machines.topology.is_measured ? "measured peak," : "data sheet's",
                        short_number(time["peak_tflops"].get<double>()));
  if (job.train.model.quantization.enabled() && !machines.topology.number("fp8_tflops"))
    absl::StrAppend(&text, "  8-bit GEMMs are forecast in bf16: the topology ",
                    machines.topology.name, " has no fp8_tflops\n");
  const double tokens = figures.tokens_per_second * figures.seconds;
  if (job.train.steps > 0) {
    absl::StrAppendFormat(&text, "  %s for %s steps, %.3g tokens; %s GPU-hours",
                          duration(figures.run_days * kSecondsPerDay), with_commas(job.train.steps),
                          tokens * static_cast<double>(job.train.steps),
                          short_number(figures.gpu_hours));
    if (figures.cost) absl::StrAppendFormat(&text, ", cost %s", short_number(*figures.cost));
    text += "\n";
    if (figures.kilowatt_hours) absl::StrAppend(&text, energy_line(figures));
  }
  absl::StrAppendFormat(&text, "  1T tokens: %.4g days\n",
                        1e12 / figures.tokens_per_second / kSecondsPerDay);
  std::vector<std::vector<std::string>> rows(1, {"WHERE THE STEP GOES", "SECONDS", "SHARE"});
  const auto add_row = [&](std::string name, double seconds) {
    rows.push_back({std::move(name), absl::StrFormat("%.4f", seconds),
                    absl::StrFormat("%.1f%%", 100 * seconds / figures.seconds)});
  };
  for (const auto& part : time["parts"])
    add_row(part["name"].get<std::string>(), part["seconds"].get<double>());
  if (figures.data_seconds > 0) add_row("waits for data", figures.data_seconds);
  if (figures.checkpoint_seconds > 0)
    add_row("beside it: stalls for checkpoints", figures.checkpoint_seconds);
  absl::StrAppend(&text, "\n", format_table(std::move(rows)));
  if (job.train.enable_checkpointing && machines.topology.has_backend &&
      figures.best_save_seconds) {
    absl::StrAppendFormat(
        &text,
        "\ninterruptions: %.0f%% of the time remain for steps if a checkpoint is saved each %s "
        "(%s), %.0f%% with checkpoint_period=%d\n",
        100 * figures.effective_share, duration(*figures.best_save_seconds),
        counted(std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(
                                          *figures.best_save_seconds / figures.seconds))),
                "step"),
        100 * figures.share_at_period, job.train.checkpoint_period);
  }
  return text;
}

nlohmann::json to_json(const StepFigures& figures) {
  nlohmann::json out = {{"seconds", figures.seconds},
                        {"tokens_per_second", figures.tokens_per_second},
                        {"tokens_per_second_per_device", figures.tokens_per_second_per_device},
                        {"sequences_per_second", figures.sequences_per_second},
                        {"mfu", figures.mfu},
                        {"mfu_causal", figures.mfu_causal},
                        {"run_days", figures.run_days},
                        {"gpu_hours", figures.gpu_hours},
                        {"effective_share", figures.effective_share},
                        {"data_seconds", figures.data_seconds},
                        {"checkpoint_seconds", figures.checkpoint_seconds},
                        {"save_stall_seconds", figures.save_stall_seconds},
                        {"share_at_period", figures.share_at_period}};
  if (figures.best_save_seconds) out["best_save_seconds"] = *figures.best_save_seconds;
  if (figures.cost) out["cost"] = *figures.cost;
  if (figures.kilowatt_hours) {
    out["kilowatt_hours"] = *figures.kilowatt_hours;
    out["kilowatt_hours_per_device"] = figures.kilowatt_hours_per_device;
    out["power_is_measured"] = figures.is_power_measured;
  }
  if (figures.energy_cost) out["energy_cost"] = *figures.energy_cost;
  return out;
}

}  // namespace muster::cli

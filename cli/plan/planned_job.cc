#include "cli/plan/planned_job.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "cli/run/pasted_command.h"
#include "jobspec/config.h"
#include "jobspec/settings/settings.h"

namespace muster::cli {
namespace {

absl::StatusOr<jobspec::PlannedMachines> machines_of(const jobspec::Config& config) {
  if (config.planned_topology.empty()) {
    return absl::InvalidArgumentError(
        "compile_topology is missing: the machines to plan for, NAME-DEVICES, such as "
        "compile_topology=h100-64 (with compile_topology_num_slices=N: N times as many)");
  }
  const auto shipped = shipped_base_yml();
  return jobspec::planned_machines(config.planned_topology, config.planned_slices,
                                   jobspec::topology_folders(config, shipped.value_or("")));
}

// Returns the job on these machines: one rank for each device.
absl::StatusOr<jobspec::ResolvedJob> job_on_machines(const jobspec::PlannedMachines& machines,
                                                     jobspec::Config config,
                                                     JobArguments arguments) {
  const bool is_cpu = machines.topology.is_cpu;
  config.settings["hardware"] = {.value = is_cpu ? "cpu" : "gpu",
                                 .origin = "compile_topology",
                                 .layer = jobspec::Layer::kBaseFile};
  arguments.nodes = machines.nodes;
  arguments.ranks_per_node = machines.devices_per_node;
  arguments.node_gpus = is_cpu ? 0 : machines.devices_per_node;
  if (is_cpu) {
    const std::string& name = machines.topology.name;
    const auto speed = machines.topology.number("bfloat16_speed");
    arguments.planned_cpu.bfloat16_speed = speed;
    arguments.planned_cpu.name =
        speed ? absl::StrCat("the CPU of compile_topology=", name)
              : absl::StrCat("this machine's CPU (the topology ", name, " has no bfloat16_speed)");
  }
  return resolve_job(config, arguments);
}

// Refuses a choice of hardware that the topology does not have.
absl::Status check_hardware(const jobspec::Config& config, const jobspec::Topology& topology) {
  const auto hardware = config.settings.find("hardware");
  if (hardware == config.settings.end() || !jobspec::is_of_user(hardware->second) ||
      hardware->second.value != (topology.is_cpu ? "gpu" : "cpu"))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "hardware=", topology.is_cpu ? "gpu" : "cpu", ": the devices of compile_topology=",
      topology.name, " are ", topology.is_cpu ? "CPUs" : "accelerators",
      "; compile_topology=cpu-4 plans for 4 ranks on CPUs, compile_topology=h100-8 for GPUs"));
}

}  // namespace

bool gives_global_batch(const jobspec::Config& config) {
  const auto& settings = config.settings;
  const auto global = settings.find("global_batch_size");
  if (global == settings.end() || global->second.value == 0) return false;
  const auto per_device = settings.find("per_device_batch_size");
  return jobspec::is_of_user(global->second) || per_device == settings.end() ||
         !jobspec::is_of_user(per_device->second);
}

absl::StatusOr<PlannedJob> planned_job(JobArguments arguments, const std::string& program) {
  arguments.is_for_plan = true;
  auto config = load_config(arguments);
  if (!config.ok()) return config.status();
  auto machines = machines_of(*config);
  if (!machines.ok()) return machines.status();
  if (auto status = check_hardware(*config, machines->topology); !status.ok()) return status;
  const auto folders = jobspec::calibration_folders(*config, shipped_base_yml().value_or(""));
  auto calibration = jobspec::find_calibration(program, machines->topology.name,
                                               machines->topology.calibrated_as, folders);
  if (!calibration.ok() && !(absl::IsNotFound(calibration.status()) && program == "muster"))
    return calibration.status();
  const bool keeps_global_batch = gives_global_batch(*config);
  const auto slices = static_cast<int32_t>(std::max<int64_t>(config->planned_slices, 1));
  auto job = job_on_machines(*machines, *std::move(config), arguments);
  if (!job.ok()) return job.status();
  PlannedJob planned{*std::move(machines), *std::move(job)};
  planned.planned_slices = slices;
  planned.keeps_global_batch = keeps_global_batch;
  if (calibration.ok()) planned.calibration = *std::move(calibration);
  return planned;
}

}  // namespace muster::cli

#include "cli/plan/admission.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/plan/forecast.h"
#include "cli/run/build_features.h"
#include "cli/run/pasted_command.h"
#include "cli/terminal/terminal.h"
#include "jobspec/files/topology_names.h"

namespace muster::cli {
namespace {

// Returns the GPU of `count` GPUs of the worker that limits a job if it gets the largest ones;
// nullptr if the worker has none.
const v1::Gpu* limiting_gpu(const v1::WorkerInfo& worker, int32_t count) {
  std::vector<const v1::Gpu*> gpus;
  for (const v1::Gpu& gpu : worker.gpus()) gpus.push_back(&gpu);
  if (gpus.empty()) return nullptr;
  std::ranges::sort(gpus, std::ranges::greater(), &v1::Gpu::memory_bytes);
  return gpus[std::min(gpus.size(), static_cast<size_t>(std::max(count, 1))) - 1];
}

// Returns the value of the config's key `hardware`; "" if it has none.
std::string hardware_of(const v1::JobSpec& spec) {
  const auto config =
      nlohmann::json::parse(spec.train_config_json(), nullptr, /*allow_exceptions=*/false);
  const auto found = config.is_object() ? config.find("hardware") : config.end();
  return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

// `must_fit`: a job that does not fit is refused; otherwise a warning is printed.
absl::Status check_size(const std::string& train_config_json, const GpuType& type, bool must_fit) {
  const auto forecast =
      run_forecast(train_config_json, type.topology, {.changes = FittingChanges::kFind});
  if (!forecast.ok()) {
    // A login node may have no trainer; the ranks check their memory when they start.
    warn(absl::StrCat("the memory of the job's GPUs was not checked: ",
                      forecast.status().message()));
    return absl::OkStatus();
  }
  if (forecast->value("fits", false)) return absl::OkStatus();
  const std::string text =
      absl::StrCat("the job does not fit in the memory of ", type.topology.device, ", ",
                   type.source, ":\n", forecast->value("problem", std::string()));
  if (must_fit)
    return absl::InvalidArgumentError(
        absl::StrCat(text, "\n--no-plan submits it without this check"));
  warn(absl::StrCat(text,
                    "\nwith hardware=auto it runs on the CPUs if the trainer cannot use "
                    "these GPUs"));
  return absl::OkStatus();
}

}  // namespace

void add_no_plan_option(CLI::App& command, JobArguments& arguments) {
  command.add_flag("--no-plan", arguments.no_plan,
                   "Skip the check whether the job fits in the memory of its GPUs");
}

bool has_gpu_plan(const JobArguments& arguments, const v1::JobSpec& spec) {
  if (arguments.no_plan || spec.command_size() > 0 || spec.gpus_per_rank() == 0) return false;
  const std::string hardware = hardware_of(spec);
  return hardware == "gpu" || (hardware == "auto" && kHasGpuBackend);
}

absl::StatusOr<std::vector<jobspec::Topology>> topologies_for(const JobArguments& arguments) {
  const auto shipped = shipped_base_yml();
  if (arguments.config_path.empty()) {
    // a job that another command has resolved
    return jobspec::all_topologies(
        jobspec::topology_folders(jobspec::Config{}, shipped.value_or("")));
  }
  const auto config = load_config(arguments);
  if (!config.ok()) return config.status();
  return jobspec::all_topologies(jobspec::topology_folders(*config, shipped.value_or("")));
}

absl::StatusOr<std::optional<GpuType>> gpu_type_of_config(const JobArguments& arguments) {
  if (arguments.config_path.empty()) return std::nullopt;
  const auto config = load_config(arguments);
  if (!config.ok()) return config.status();
  if (config->planned_topology.empty()) return std::nullopt;
  const auto shipped = shipped_base_yml();
  auto machines =
      jobspec::planned_machines(config->planned_topology, config->planned_slices,
                                jobspec::topology_folders(*config, shipped.value_or("")));
  if (!machines.ok()) return machines.status();
  return GpuType{std::move(machines->topology),
                 absl::StrCat("by compile_topology=", config->planned_topology)};
}

std::optional<GpuType> gpu_type_of_workers(const v1::ListWorkersResponse& workers,
                                           const v1::JobSpec& spec,
                                           const std::vector<jobspec::Topology>& topologies,
                                           const std::string& source) {
  const int32_t per_node = spec.ranks_per_node() * std::max(spec.gpus_per_rank(), 1);
  std::vector<const v1::Gpu*> gpus;
  for (const v1::WorkerInfo& worker : workers.workers()) {
    if (!worker.connected() || worker.leaving()) continue;
    if (const v1::Gpu* gpu = limiting_gpu(worker, per_node);
        gpu != nullptr && gpu->memory_bytes() > 0)
      gpus.push_back(gpu);
  }
  if (gpus.empty()) return std::nullopt;
  std::ranges::sort(gpus, [](const v1::Gpu* a, const v1::Gpu* b) {
    return a->memory_bytes() > b->memory_bytes();
  });
  const v1::Gpu& gpu =
      *gpus[std::min(gpus.size(), static_cast<size_t>(std::max(spec.nodes(), 1))) - 1];
  for (const jobspec::Topology& topology : topologies)
    if (topology.device == gpu.name()) return GpuType{topology, source};
  jobspec::Topology own;
  own.device = gpu.name();
  own.memory_mib = static_cast<int64_t>(gpu.memory_bytes() >> 20);
  return GpuType{std::move(own), source};
}

std::optional<GpuType> gpu_type_of_names(const std::vector<std::string>& names,
                                         const std::vector<jobspec::Topology>& topologies,
                                         const std::string& source) {
  std::optional<jobspec::Topology> best;
  for (const std::string& name : names) {
    auto named = jobspec::topology_named(name, topologies);
    if (!named) {
      best.reset();
      break;
    }
    if (!best || named->memory_mib > best->memory_mib) best = std::move(named);
  }
  if (best) return GpuType{*std::move(best), source};
  auto largest = jobspec::largest_topology(topologies);
  if (!largest) return std::nullopt;
  return GpuType{*std::move(largest),
                 "the largest known type: the nodes' type is unknown (compile_topology=h100 names "
                 "it)"};
}

std::optional<uint64_t> gpu_bytes_of(const v1::JobSpec& spec, const GpuType& type) {
  const auto forecast =
      run_forecast(spec.train_config_json(), type.topology, {.changes = FittingChanges::kOmit});
  if (!forecast.ok()) return std::nullopt;
  uint64_t most = 0;
  for (const auto& stage : (*forecast)["stages"])
    most = std::max(most, stage.value("device_bytes", uint64_t{0}));
  return most;
}

bool may_have_gpus(const v1::JobSpec& spec, int32_t gpus_per_node) {
  return gpus_per_node > 0 || hardware_of(spec) == "gpu";
}

absl::Status check_gpu_memory(const v1::JobSpec& spec, const GpuType& type) {
  // The trainer may be unable to use a GPU that no machine type describes.
  const bool must_fit = !type.topology.name.empty() || hardware_of(spec) == "gpu";
  if (auto status = check_size(spec.train_config_json(), type, must_fit); !status.ok())
    return status;
  for (const v1::Smaller& size : spec.smaller()) {
    const absl::Status status = check_size(size.train_config_json(), type, must_fit);
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("on ", size.nodes(), " of ", spec.nodes(),
                                                    " nodes (min_nodes): ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace muster::cli

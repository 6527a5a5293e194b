#include "cli/plan/admission.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/jobs/job_sizes.h"
#include "cli/plan/forecast.h"
#include "cli/plan/plan_comparison.h"
#include "cli/plan/planned_job.h"
#include "cli/run/build_features.h"
#include "cli/run/pasted_command.h"
#include "cli/terminal/terminal.h"
#include "jobspec/files/topology_names.h"
#include "jobspec/job_paths.h"
#include "trainer_core/base/saved_plan_check.h"

namespace muster::cli {
namespace {

// Returns the last of the `count` GPUs with the most memory, or of all if there are fewer; nullptr
// if there are none.
const v1::Gpu* last_of_largest(std::vector<const v1::Gpu*> gpus, int32_t count) {
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

// Returns the plan of the config's compiled_trainstep_file, which the job already matches; nullopt:
// it has none.
std::optional<trainer::SavedPlan> saved_plan_of(const v1::JobSpec& spec) {
  const auto config =
      nlohmann::json::parse(spec.train_config_json(), nullptr, /*allow_exceptions=*/false);
  const auto path = config.is_object() ? config.find(jobspec::kSavedPlanKey) : config.end();
  if (path == config.end() || !path->is_string()) return std::nullopt;
  auto plan = trainer::read_saved_plan(path->get<std::string>());
  return plan.ok() ? std::optional(*std::move(plan)) : std::nullopt;
}

// `must_fit`: a job that does not fit is refused; otherwise a warning is printed.
absl::Status check_size(const std::string& train_config_json, const GpuType& type, bool must_fit,
                        bool keeps_global_batch) {
  const auto forecast =
      run_forecast(train_config_json, type.topology,
                   {.changes = FittingChanges::kFind, .keeps_global_batch = keeps_global_batch});
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

// Returns whether the job's command gives global_batch_size.
bool has_global_batch(const JobArguments& arguments) {
  if (arguments.config_path.empty()) return false;  // another command has resolved the job
  const auto config = load_config(arguments);
  return config.ok() && gives_global_batch(*config);
}

// Returns the type of the job's GPUs: that of the config's compile_topology, or of `find` if it has
// none.
absl::StatusOr<std::optional<GpuType>> gpu_type_of(const JobArguments& arguments,
                                                   const FindGpuType& find) {
  jobspec::Config config;
  if (!arguments.config_path.empty()) {  // else another command has resolved the job
    auto loaded = load_config(arguments);
    if (!loaded.ok()) return loaded.status();
    config = *std::move(loaded);
  }
  const auto folders = jobspec::topology_folders(config, shipped_base_yml().value_or(""));
  if (config.planned_topology.empty()) return find(jobspec::all_topologies(folders));
  auto machines =
      jobspec::planned_machines(config.planned_topology, config.planned_slices, folders);
  if (!machines.ok()) return machines.status();
  return GpuType{std::move(machines->topology),
                 absl::StrCat("by compile_topology=", config.planned_topology)};
}

}  // namespace

void add_no_plan_option(CLI::App& command, JobArguments& arguments) {
  command.add_flag(
      "--no-plan", arguments.no_plan,
      "Skip the check whether the job fits in memory, and the forecast of its step's time");
}

bool has_gpu_plan(const JobArguments& arguments, const v1::JobSpec& spec) {
  if (arguments.no_plan || spec.command_size() > 0 || spec.gpus_per_rank() == 0) return false;
  const std::string hardware = hardware_of(spec);
  return hardware == "gpu" || (hardware == "auto" && kHasGpuBackend);
}

std::optional<GpuType> gpu_type_of_workers(const v1::ListWorkersResponse& workers,
                                           const v1::JobSpec& spec,
                                           const std::vector<jobspec::Topology>& topologies,
                                           const std::string& source) {
  const int32_t per_node = spec.ranks_per_node() * std::max(spec.gpus_per_rank(), 1);
  std::vector<const v1::Gpu*> of_workers;
  for (const v1::WorkerInfo& worker : workers.workers()) {
    if (!worker.connected() || worker.leaving()) continue;
    std::vector<const v1::Gpu*> gpus;
    for (const v1::Gpu& gpu : worker.gpus()) gpus.push_back(&gpu);
    if (const v1::Gpu* gpu = last_of_largest(std::move(gpus), per_node);
        gpu != nullptr && gpu->memory_bytes() > 0)
      of_workers.push_back(gpu);
  }
  const v1::Gpu* gpu = last_of_largest(std::move(of_workers), spec.nodes());
  if (gpu == nullptr) return std::nullopt;
  if (auto known = topology_of_device(gpu->name(), topologies, spec.nodes()); known)
    return GpuType{*std::move(known), source};
  jobspec::Topology own;
  own.device = gpu->name();
  own.memory_mib = static_cast<int64_t>(gpu->memory_bytes() >> 20);
  return GpuType{std::move(own), source};
}

std::optional<GpuType> gpu_type_of_names(const std::vector<std::string>& names,
                                         const std::vector<jobspec::Topology>& topologies,
                                         const std::string& source, int32_t nodes) {
  std::optional<jobspec::Topology> best;
  for (const std::string& name : names) {
    auto named = jobspec::topology_named(name, topologies);
    if (!named) {
      best.reset();
      break;
    }
    if (jobspec::denotes_device(name, *named))
      named = topology_of_device(named->device, topologies, nodes);
    if (!best || named->memory_mib > best->memory_mib) best = std::move(named);
  }
  if (best) return GpuType{*std::move(best), source};
  auto largest = jobspec::largest_topology(topologies);
  if (!largest) return std::nullopt;
  return GpuType{*std::move(largest),
                 "the largest known type: the nodes' type is unknown (compile_topology=h100 names "
                 "it)",
                 /*is_known=*/false};
}

bool may_have_gpus(const v1::JobSpec& spec, int32_t gpus_per_node) {
  return gpus_per_node > 0 || hardware_of(spec) == "gpu";
}

absl::Status check_gpu_memory(const JobArguments& arguments, const v1::JobSpec& spec,
                              const FindGpuType& find, std::optional<jobspec::Topology>* found) {
  if (!has_gpu_plan(arguments, spec)) return absl::OkStatus();
  const auto type = gpu_type_of(arguments, find);
  if (!type.ok()) return type.status();
  if (!*type) return absl::OkStatus();
  if (found != nullptr && (*type)->is_known) *found = (*type)->topology;
  // The plan of a job that fits: it fits wherever the devices are those of the plan.
  if (const auto plan = saved_plan_of(spec); plan) {
    return (*type)->is_known ? trainer::check_planned_device(*plan, (*type)->topology.device)
                             : absl::OkStatus();
  }
  // The trainer may be unable to use a GPU that no machine type describes.
  const bool must_fit = !(*type)->topology.name.empty() || hardware_of(spec) == "gpu";
  const bool keeps_global_batch = has_global_batch(arguments);
  return check_each_size(spec, [&](const std::string& config) {
    return check_size(config, **type, must_fit, keeps_global_batch);
  });
}

uint64_t planned_gpu_bytes(const v1::JobSpec& spec, const v1::ListWorkersResponse& workers) {
  if (!has_gpu_plan({}, spec)) return 0;
  const auto type = gpu_type_of({}, [&](const std::vector<jobspec::Topology>& topologies) {
    return gpu_type_of_workers(workers, spec, topologies, "");
  });
  if (!type.ok() || !*type) return 0;
  const auto forecast = run_forecast(spec.train_config_json(), (*type)->topology, {});
  return forecast.ok() ? largest_device_bytes(*forecast) : 0;
}

}  // namespace muster::cli

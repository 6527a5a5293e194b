#include "cli/run/requested_job.h"

#include <cstdlib>
#include <utility>

#include <absl/strings/str_cat.h>

#include "cli/plan/machine_files.h"
#include "cli/plan/plan_comparison.h"
#include "cli/run/build_features.h"
#include "cli/run/local_gpu_check.h"
#include "cli/run/pasted_command.h"
#include "cli/run/profiler.h"
#include "cli/run/this_machine.h"
#include "cli/terminal/terminal.h"
#include "cli/text/first_use.h"
#include "common/files/find_program.h"
#include "common/objects/object_cache.h"
#include "common/process/usable_cpus.h"
#include "common/text/with_commas.h"
#include "jobspec/files/topology.h"
#include "jobspec/files/topology_names.h"
#include "trainer_core/model/param_spec.h"

namespace muster::cli {
namespace {

// Restarts under nsys if a profiler is requested and can record something. A run without a profile
// is better than none.
void record_steps(const jobspec::ResolvedJob& job) {
  const trainer::TrainConfig& train = job.train;
  if (train.profile.profiler == trainer::Profiler::kNone ||
      train.hardware == trainer::Hardware::kCpu)
    return;
  const absl::Status status =
      restart_under_nsys(local_output_folder(job.spec.output_directory()) + "/profile");
  if (!status.ok())
    warn(absl::StrCat("profiler=nsys: cannot record a profile: ", status.message()));
}

}  // namespace

void predict_here(const JobArguments& arguments, jobspec::ResolvedJob& job) {
  if (arguments.no_plan || job.spec.planned_step_us() > 0) return;
  const std::string& named = job.planned_topology;
  const trainer::Hardware hardware = job.train.hardware;
  const bool has_gpus = kHasGpuBackend && hardware != trainer::Hardware::kCpu &&
                        (hardware == trainer::Hardware::kGpu || local_gpus() > 0);
  if (named.empty() && !has_gpus && hardware == trainer::Hardware::kGpu) return;
  const auto config = load_config(arguments);
  if (!config.ok()) return;
  const std::string shipped = shipped_base_yml().value_or("");
  const auto folders = jobspec::topology_folders(*config, shipped);
  std::optional<jobspec::Topology> devices;
  if (!named.empty()) {
    auto machines = jobspec::planned_machines(named, config->planned_slices, folders);
    if (!machines.ok()) return warn(std::string(machines.status().message()));
    if (machines->topology.is_cpu == has_gpus) return;
    devices = std::move(machines->topology);
  } else if (!has_gpus) {
    devices = jobspec::measured_cpu(cpu_model(own_cpuinfo()), usable_cpus(), folders);
  } else if (const std::string name = local_gpu_name(); !name.empty()) {
    devices = topology_of_device(name, jobspec::all_topologies(folders), job.spec.nodes());
  }
  if (devices) predict(*devices, jobspec::calibration_folders(*config, shipped), job.spec);
}

StartNeeds start_needs(const RequestedJob& job) {
  constexpr uint64_t kDaemons = 2;
  // A trainer has at least a thread for stacks, signals, input and transport.
  const uint64_t of_rank = job.spec.command_size() > 0 ? 1 : 5;
  StartNeeds needs = kRunNeeds;
  needs.threads += kDaemons + kCoordinatorNeeds.threads + kWorkerNeeds.threads +
                   of_rank * static_cast<uint64_t>(job.ranks());
  return needs;
}

absl::StatusOr<RequestedJob> requested_job(const JobArguments& arguments) {
  if (!arguments.is_program()) {
    auto job = load_job_and_data(arguments, FirstUse::kTokenize);
    if (!job.ok()) return job.status();
    record_steps(*job);
    predict_here(arguments, *job);
    const auto parameters = trainer::parameter_count(trainer::model_params(job->train.model));
    return RequestedJob{
        std::move(job->spec),
        absl::StrCat(job->train.model.name, ": ", with_commas(parameters), " parameters"),
        job->train.enable_checkpointing};
  }
  auto spec = load_program(arguments);
  if (!spec.ok()) return spec.status();
  // The rank's environment is this process's, overridden by the job's.
  const auto path = spec->environment().find("PATH");
  const char* own_path = std::getenv("PATH");
  auto program = find_program(spec->command(0),
                              path != spec->environment().end() ? path->second
                              : own_path != nullptr             ? own_path
                                                                : "",
                              spec->working_directory());
  if (!program.ok()) return program.status();
  const int32_t ranks = spec->nodes() * spec->ranks_per_node();
  return RequestedJob{*std::move(spec),
                      absl::StrCat(*program, ": ", ranks, ranks == 1 ? " rank" : " ranks")};
}

}  // namespace muster::cli

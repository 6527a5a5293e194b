#include "cli/jobs/saved_plan_start.h"

#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "cli/plan/plan_comparison.h"
#include "jobspec/job_paths.h"
#include "jobspec/settings/settings.h"
#include "trainer_core/base/saved_plan_check.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::cli {
namespace {

// Sets a key to the plan's value unless the user has set it.
void take(const trainer::SavedPlan& plan, std::string_view key, std::string_view value,
          jobspec::Config& config) {
  const auto setting = config.settings.find(key);
  if (setting != config.settings.end() && jobspec::is_of_user(setting->second)) return;
  // The layer of users prevents a default from replacing it.
  config.settings[std::string(key)] = {
      .value = std::string(value), .origin = plan.path, .layer = jobspec::Layer::kUserFile};
}

// Returns the stalls for checkpoints per step. A plan does not determine how its job saves; 0: the
// plan is of another way to save.
double planned_stalls(const trainer::SavedPlan& plan, const trainer::TrainConfig& job) {
  const trainer::TrainConfig& planned = plan.config;
  if (!job.enable_checkpointing || !planned.enable_checkpointing ||
      job.async_checkpointing != planned.async_checkpointing || job.checkpoint_period <= 0)
    return 0;
  return plan.checkpoint_seconds * static_cast<double>(planned.checkpoint_period) /
         static_cast<double>(job.checkpoint_period);
}

absl::Status check_sizes(const trainer::SavedPlan& plan, const jobspec::ResolvedJob& job) {
  if (job.spec.smaller().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "compiled_trainstep_file=", plan.path, ": the plan is for ", plan.nodes,
      " nodes, but min_nodes=", job.spec.min_nodes(),
      " lets the job continue on fewer; leave min_nodes or compiled_trainstep_file unset"));
}

}  // namespace

bool has_saved_plan(const jobspec::Config& config) {
  const jobspec::Setting* const setting =
      jobspec::find_setting(config.settings, jobspec::kSavedPlanKey);
  return setting != nullptr && setting->value != "";
}

absl::StatusOr<jobspec::ResolvedJob> resolve_with_plan(jobspec::Config config,
                                                       const jobspec::LaunchOptions& options) {
  const jobspec::Setting& setting = config.settings.at(jobspec::kSavedPlanKey);
  const auto path = jobspec::saved_plan_path(setting.value.get<std::string>(), options);
  if (!path.ok()) return path.status();
  const auto read = trainer::read_saved_plan(*path);
  if (!read.ok()) return read.status();
  const trainer::SavedPlan& plan = *read;
  if (!plan.has_backend) return trainer::check_planned_device(plan, "");
  take(plan, "hardware", name_of(trainer::kHardwareNames, plan.config.hardware), config);
  take(plan, "dtype", name_of(trainer::kComputeTypeNames, plan.config.dtype), config);
  const Mesh mesh = trainer::mesh_of(plan.config.mesh);
  jobspec::LaunchOptions planned = options;
  planned.nodes = options.nodes.value_or(mesh.nodes());
  planned.ranks_per_node = options.ranks_per_node.value_or(mesh.ranks_per_node());
  auto job = jobspec::resolve_job(config, planned);
  // The user's mesh may have another number of ranks; the check below then names it.
  if (!job.ok())
    if (auto own = jobspec::resolve_job(config, options); own.ok()) job = std::move(own);
  if (!job.ok()) return job.status();
  if (auto status = trainer::check_planned_config(plan, job->train); !status.ok()) return status;
  if (auto status = check_sizes(plan, *job); !status.ok()) return status;
  PredictedStep step = {.seconds = plan.step_seconds,
                        .communication_seconds = plan.communication_seconds,
                        .read_seconds = plan.read_seconds,
                        .checkpoint_seconds = planned_stalls(plan, job->train)};
  add_data_wait(job->train, step);
  job->train.planned_step_seconds = step.seconds;
  job->train.planned_communication_seconds = step.communication_seconds;
  job->train.planned_data_seconds = step.data_seconds;
  job->train.planned_checkpoint_seconds = step.checkpoint_seconds;
  set_prediction(step, static_cast<uint64_t>(plan.device_bytes), job->spec);
  return job;
}

}  // namespace muster::cli

#include "cli/plan/compare.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "cli/plan/compare_view.h"
#include "cli/terminal/terminal.h"
#include "jobspec/explain.h"
#include "jobspec/mesh/mesh_keys.h"

namespace muster::cli {
namespace {

// Returns the resolved value of each key of the config.
absl::StatusOr<nlohmann::json> keys_of(JobArguments arguments, const PlannedJob& planned) {
  arguments.is_for_plan = true;
  const auto config = load_config(arguments);
  if (!config.ok()) return config.status();
  auto keys = nlohmann::json::object();
  keys["compile_topology"] = config->planned_topology;
  if (config->planned_slices >= 1) keys["compile_topology_num_slices"] = config->planned_slices;
  for (const jobspec::ExplainedKey& row : jobspec::explain(*config, planned.job))
    keys[row.key] = row.value;
  return keys;
}

absl::StatusOr<ComparedPlan> plan_of(const std::string& name, const JobArguments& arguments,
                                     const Planner& planner, const PlanPrices& prices) {
  const auto in = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
  };
  const auto planned = planner.resolve(arguments);
  if (!planned.ok()) return in(planned.status());
  for (const std::string& warning : planned->job.warnings) warn(absl::StrCat(name, ": ", warning));
  auto forecast = planner.forecast(*planned);
  if (!forecast.ok()) return in(forecast.status());
  auto keys = keys_of(arguments, *planned);
  if (!keys.ok()) return in(keys.status());
  ComparedPlan plan{.name = name,
                    .keys = *std::move(keys),
                    .mesh = planned->job.mesh.to_string(),
                    .sequences = jobspec::global_batch_size(planned->job.mesh, planned->job.train),
                    .forecast = *std::move(forecast),
                    .figures = {}};
  if (plan.forecast.contains("time"))
    plan.figures = step_figures(planned->job, planned->machines, plan.forecast, prices);
  return plan;
}

}  // namespace

int compare_plans(const std::string& other, const JobArguments& job, const Planner& planner,
                  const PlanPrices& prices, bool json) {
  std::error_code error;  // the path of a file may contain '='
  const bool is_words =
      other.find('=') != std::string::npos && !std::filesystem::exists(other, error);
  JobArguments left = job, right = job;
  std::pair<std::string, std::string> names(other, job.config_path);
  if (is_words) {
    for (const absl::string_view word : absl::StrSplit(other, ' ', absl::SkipEmpty()))
      right.overrides.emplace_back(word);
    names = {job.config_path, other};
  } else {
    left.config_path = other;
  }
  auto first = plan_of(names.first, left, planner, prices);
  if (!first.ok()) return fail(first.status());
  auto second = plan_of(names.second, right, planner, prices);
  if (!second.ok()) return fail(second.status());
  const ComparedPlans plans = {*std::move(first), *std::move(second)};
  return print_result(json ? to_json(plans).dump(2) + "\n" : describe_comparison(plans));
}

}  // namespace muster::cli

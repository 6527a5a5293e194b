// muster plan: the memory that a job needs on machines that need not exist yet.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/jobs/job_arguments.h"
#include "cli/plan/forecast.h"
#include "cli/plan/plan_view.h"
#include "cli/run/pasted_command.h"
#include "cli/terminal/terminal.h"
#include "jobspec/config.h"
#include "jobspec/mesh_keys.h"
#include "jobspec/value.h"

namespace muster::cli {
namespace {

struct PlanArguments {
  JobArguments job;
  std::vector<std::string> vary;  // "key=value,value…"
  bool json = false;
};

// More combinations would take minutes, and fill no readable table.
constexpr size_t kCombinationsMax = 256;

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
absl::StatusOr<jobspec::ResolvedJob> job_on(const jobspec::PlannedMachines& machines,
                                            jobspec::Config config, JobArguments arguments) {
  config.settings["hardware"] = {
      .value = "gpu", .origin = "compile_topology", .layer = jobspec::Layer::kBaseFile};
  arguments.nodes = machines.nodes;
  arguments.ranks_per_node = machines.devices_per_node;
  arguments.node_gpus = machines.devices_per_node;
  return resolve_job(config, arguments);
}

// A job and the machines that it is planned for.
struct PlannedJob {
  jobspec::PlannedMachines machines;
  jobspec::ResolvedJob job;
};

absl::StatusOr<PlannedJob> planned_job(JobArguments arguments) {
  arguments.is_for_plan = true;
  auto config = load_config(arguments);
  if (!config.ok()) return config.status();
  auto machines = machines_of(*config);
  if (!machines.ok()) return machines.status();
  auto job = job_on(*machines, *std::move(config), arguments);
  if (!job.ok()) return job.status();
  return PlannedJob{*std::move(machines), *std::move(job)};
}

// A key of --vary with its values.
struct VariedKey {
  std::string key;
  std::vector<std::string> values;
};

absl::StatusOr<std::vector<VariedKey>> parse_vary(const std::vector<std::string>& words) {
  std::vector<VariedKey> keys;
  size_t combinations = 1;
  for (const std::string& word : words) {
    auto split = jobspec::split_override(word);
    if (!split.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("--vary ", word, ": expected KEY=VALUE,VALUE,…"));
    VariedKey key{.key = split->first, .values = absl::StrSplit(split->second, ',')};
    combinations *= key.values.size();
    if (combinations > kCombinationsMax) {
      return absl::InvalidArgumentError(absl::StrCat("--vary has more than ", kCombinationsMax,
                                                     " combinations; give fewer values"));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

// Returns the values of combination `index`, the last key fastest.
std::vector<std::string> combination(const std::vector<VariedKey>& keys, size_t index) {
  std::vector<std::string> values(keys.size());
  for (size_t i = keys.size(); i-- > 0;) {
    values[i] = keys[i].values[index % keys[i].values.size()];
    index /= keys[i].values.size();
  }
  return values;
}

absl::StatusOr<VariedPlan> plan_variation(const PlanArguments& arguments,
                                          const std::vector<VariedKey>& keys, size_t index) {
  VariedPlan plan;
  plan.values = combination(keys, index);
  JobArguments job_arguments = arguments.job;
  for (size_t i = 0; i < keys.size(); ++i)
    job_arguments.overrides.push_back(absl::StrCat(keys[i].key, "=", plan.values[i]));
  const auto planned = planned_job(std::move(job_arguments));
  if (absl::IsInvalidArgument(planned.status()) || absl::IsNotFound(planned.status())) {
    plan.problem = std::string(planned.status().message());
    return plan;
  }
  if (!planned.ok()) return planned.status();
  auto memory = forecast_memory(trainer::to_json(planned->job.train).dump(),
                                planned->machines.topology, FittingChanges::kOmit);
  if (!memory.ok()) return memory.status();
  plan.mesh = planned->job.mesh.to_string();
  plan.warnings = planned->job.warnings;
  plan.sequences = jobspec::global_batch_size(planned->job.mesh, planned->job.train);
  plan.forecast = *std::move(memory);
  return plan;
}

// Plans all combinations of the varied keys. A combination that does not fit is no failure.
int plan_variations(const PlanArguments& arguments) {
  const auto keys = parse_vary(arguments.vary);
  if (!keys.ok()) return fail(keys.status());
  size_t count = 1;
  std::vector<std::string> names;
  for (const VariedKey& key : *keys) {
    count *= key.values.size();
    names.push_back(key.key);
  }
  std::vector<VariedPlan> plans;
  std::set<std::string> warned;
  for (size_t i = 0; i < count; ++i) {
    auto plan = plan_variation(arguments, *keys, i);
    if (!plan.ok()) return fail(plan.status());
    for (const std::string& warning : plan->warnings)
      if (warned.insert(warning).second) warn(warning);
    plans.push_back(*std::move(plan));
  }
  // A mistake in the line is in each combination.
  if (std::ranges::none_of(plans, [](const VariedPlan& plan) { return plan.problem.empty(); }))
    return fail(absl::InvalidArgumentError(plans.front().problem));
  if (!arguments.json) return print_result(describe_variations(names, plans));
  auto out = nlohmann::json::array();
  for (const VariedPlan& plan : plans) {
    auto values = nlohmann::json::object();
    for (size_t i = 0; i < names.size(); ++i) values[names[i]] = plan.values[i];
    out.push_back({{"values", values},
                   {"problem", plan.problem},
                   {"mesh", plan.mesh},
                   {"sequences", plan.sequences},
                   {"memory", plan.forecast}});
  }
  return print_result(out.dump(2) + "\n");
}

int plan(const PlanArguments& arguments) {
  if (!arguments.vary.empty()) return plan_variations(arguments);
  const auto planned = planned_job(arguments.job);
  if (!planned.ok()) return fail(planned.status());
  const jobspec::ResolvedJob& job = planned->job;
  for (const std::string& warning : job.warnings) warn(warning);
  const jobspec::Topology& topology = planned->machines.topology;
  const auto memory =
      forecast_memory(trainer::to_json(job.train).dump(), topology, FittingChanges::kFind);
  if (!memory.ok()) return fail(memory.status());
  int code = 0;
  if (arguments.json) {
    const nlohmann::json out = {{"device", topology.device},
                                {"topology", topology.name},
                                {"nodes", job.spec.nodes()},
                                {"ranks_per_node", job.spec.ranks_per_node()},
                                {"mesh", job.mesh.to_string()},
                                {"sequences", jobspec::global_batch_size(job.mesh, job.train)},
                                {"memory", *memory},
                                {"warnings", job.warnings}};
    code = print_result(out.dump(2) + "\n");
  } else {
    code = print_result(describe_plan(job, planned->machines, *memory));
  }
  if (code != 0 || (*memory)["fits"].get<bool>()) return code;
  return fail(absl::InvalidArgumentError((*memory)["problem"].get<std::string>()));
}

}  // namespace

void declare_plan(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "Compute the memory of a job on machines that you need not have: per device, for the rank of "
      "each pipeline stage that\nneeds the most, from the plan with which the trainer allocates "
      "it. "
      "A job that does not fit gets the error of a run, with\nvalues that fit.");
  add_config_arguments(*command, arguments->job, true);
  command
      ->add_option("--vary", arguments->vary,
                   "Print a table with a line per value; several keys: per combination of values")
      ->type_name("KEY=VALUE,VALUE,…");
  add_json_option(*command, arguments->json);
  command->footer(
      "Examples:\n"
      "  muster plan configs/base.yml model_name=llama2-70b compile_topology=h100-64 "
      "per_device_batch_size=4\n"
      "  muster plan configs/base.yml model_name=llama2-7b compile_topology=h100-8 "
      "compile_topology_num_slices=8\n"
      "  muster plan python3 MaxText/train_compile.py MaxText/configs/base.yml "
      "compile_topology=v5e-256 compile_topology_num_slices=2\n"
      "  muster plan CONFIG=GPT175B compile_topology=a100-768                 # Pax\n"
      "  muster plan configs/base.yml model_name=llama2-7b compile_topology=h100-8 "
      "--vary per_device_batch_size=1,2,4 --vary remat_policy=full,minimal\n"
      "Topologies: configs/topologies; your own may lie in the folder topologies beside your "
      "base.yml.\n"
      "Exit codes: 0 the job fits, or --vary is given; 2 it does not fit.");
  on_call(*command, action, arguments, plan);
}

}  // namespace muster::cli

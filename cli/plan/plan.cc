// muster plan: the memory that a job needs, and the time of its step, on machines that need not
// exist yet.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/jobs/job_arguments.h"
#include "cli/plan/compare.h"
#include "cli/plan/forecast.h"
#include "cli/plan/plan_comparison.h"
#include "cli/plan/plan_view.h"
#include "cli/plan/planned_job.h"
#include "cli/plan/save_plan.h"
#include "cli/plan/search.h"
#include "cli/plan/step_time_view.h"
#include "cli/run/pasted_command.h"
#include "cli/terminal/terminal.h"
#include "jobspec/config.h"
#include "jobspec/files/calibration.h"
#include "jobspec/files/value.h"
#include "jobspec/mesh/mesh_keys.h"
#include "jobspec/settings/settings.h"

namespace muster::cli {
namespace {

struct PlanArguments {
  JobArguments job;
  std::vector<std::string> vary;  // "key=value,value…"
  bool json = false;
  std::string program = "muster";  // the program that the calibration describes
  std::string timeline;            // path; empty: none
  PlanPrices prices;
  SearchArguments search;
  std::string compare;  // a config, or words KEY=VALUE…; empty: no comparison
};

// More combinations would take minutes, and fill no readable table.
constexpr size_t kCombinationsMax = 256;

// Refuses options that need the time of a step if the job has no step, or if the topology does not
// give its time.
absl::Status check_times(const PlanArguments& arguments, const PlannedJob& planned) {
  const std::vector<std::string> missing = planned.machines.missing_times();
  const jobspec::Topology& topology = planned.machines.topology;
  const char* option = !arguments.timeline.empty()  ? "--timeline"
                       : arguments.search.is_wanted ? "--search"
                       : arguments.prices.price     ? "--price"
                       : arguments.prices.kwh_price ? "--kwh-price"
                                                    : nullptr;
  if (option == nullptr) return absl::OkStatus();
  if (planned.job.train.only_evaluates()) {
    return absl::InvalidArgumentError(absl::StrCat(
        option,
        " needs the time of a training step, and a job with eval_only=true has none; leave "
        "one of them out"));
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      option, " needs the time of a step, and the topology ", topology.name,
      " does not give it; add ", absl::StrJoin(missing, ", "), " to ", topology.name, ".yml"));
}

// `timeline`: the path of a picture of the step; empty: none.
absl::StatusOr<nlohmann::json> forecast(const PlannedJob& planned, FittingChanges changes,
                                        const std::string& timeline) {
  const jobspec::Topology& topology = planned.machines.topology;
  ForecastOptions options{.changes = changes,
                          .timeline = timeline,
                          .planned_slices = planned.planned_slices,
                          .layouts = !planned.job.train.compiled_trainstep_file.empty(),
                          .keeps_global_batch = planned.keeps_global_batch};
  if (planned.machines.has_times()) options.machine = step_machine(topology, planned.calibration);
  return run_forecast(trainer::to_json(planned.job.train).dump(), topology, options);
}

// Several plans have no common file.
absl::Status check_saves_nothing(const PlannedJob& planned, absl::string_view option) {
  if (planned.job.train.compiled_trainstep_file.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("compiled_trainstep_file and ", option, " exclude each other"));
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

absl::StatusOr<VariedPlan> plan_one_variation(const PlanArguments& arguments,
                                              const std::vector<VariedKey>& keys, size_t index) {
  VariedPlan plan;
  plan.values = combination(keys, index);
  JobArguments job_arguments = arguments.job;
  for (size_t i = 0; i < keys.size(); ++i)
    job_arguments.overrides.push_back(absl::StrCat(keys[i].key, "=", plan.values[i]));
  const auto planned = planned_job(std::move(job_arguments), arguments.program);
  if (planned.ok())
    if (auto status = check_saves_nothing(*planned, "--vary"); !status.ok()) return status;
  if (absl::IsInvalidArgument(planned.status()) || absl::IsNotFound(planned.status())) {
    plan.problem = std::string(planned.status().message());
    return plan;
  }
  if (!planned.ok()) return planned.status();
  if (auto status = check_times(arguments, *planned); !status.ok()) return status;
  auto memory = forecast(*planned, FittingChanges::kOmit, "");
  if (!memory.ok()) return memory.status();
  plan.mesh = planned->job.mesh.to_string();
  plan.warnings = planned->job.warnings;
  plan.sequences = jobspec::global_batch_size(planned->job.mesh, planned->job.train);
  plan.forecast = *std::move(memory);
  if (plan.forecast.contains("time")) {
    plan.figures = step_figures(planned->job, planned->machines, plan.forecast, arguments.prices);
  }
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
    auto plan = plan_one_variation(arguments, *keys, i);
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
                   {"memory", plan.forecast},
                   {"step", plan.figures ? to_json(*plan.figures) : nlohmann::json()}});
  }
  return print_result(out.dump(2) + "\n");
}

absl::Status check_arguments(const PlanArguments& arguments) {
  const PlanPrices& prices = arguments.prices;
  if (prices.price && !(*prices.price >= 0))
    return absl::InvalidArgumentError(
        absl::StrCat("--price ", *prices.price, ": must be at least 0"));
  if (prices.kwh_price && !(*prices.kwh_price >= 0))
    return absl::InvalidArgumentError(
        absl::StrCat("--kwh-price ", *prices.kwh_price, ": must be at least 0"));
  if (!(prices.failure_rate >= 0) || prices.failure_rate > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("--failure-rate ", prices.failure_rate, ": must be from 0 to 1"));
  if (!(prices.restart_seconds >= 0))
    return absl::InvalidArgumentError(
        absl::StrCat("--restart-seconds ", prices.restart_seconds, ": must be at least 0"));
  const std::string& path = arguments.timeline;
  if (!path.empty() && !path.ends_with(".json") && !path.ends_with(".svg"))
    return absl::InvalidArgumentError(
        absl::StrCat("--timeline ", path, ": must end in .json (a Chrome trace) or .svg"));
  std::vector<std::string> forms;
  if (!path.empty()) forms.emplace_back("--timeline");
  if (!arguments.vary.empty()) forms.emplace_back("--vary");
  if (arguments.search.is_wanted) forms.emplace_back("--search");
  if (!arguments.compare.empty()) forms.emplace_back("--compare");
  if (forms.size() > 1)
    return absl::InvalidArgumentError(
        absl::StrCat(forms[0], " and ", forms[1], " exclude each other"));
  return check_search_arguments(arguments.search);
}

Planner planner_of(const PlanArguments& arguments) {
  return {
      .resolve = [&](JobArguments job) -> absl::StatusOr<PlannedJob> {
        auto planned = planned_job(std::move(job), arguments.program);
        if (!planned.ok()) return planned.status();
        const char* option = arguments.search.is_wanted ? "--search" : "--compare";
        if (auto status = check_saves_nothing(*planned, option); !status.ok()) return status;
        if (auto status = check_times(arguments, *planned); !status.ok()) return status;
        return planned;
      },
      .forecast =
          [](const PlannedJob& planned) { return forecast(planned, FittingChanges::kOmit, ""); }};
}

int plan(const PlanArguments& arguments) {
  if (auto status = check_arguments(arguments); !status.ok()) return fail(status);
  if (!arguments.vary.empty()) return plan_variations(arguments);
  const Planner planner = planner_of(arguments);
  if (arguments.search.is_wanted)
    return search_plans(arguments.search, arguments.job, planner, arguments.prices, arguments.json);
  if (!arguments.compare.empty())
    return compare_plans(arguments.compare, arguments.job, planner, arguments.prices,
                         arguments.json);
  const auto planned = planned_job(arguments.job, arguments.program);
  if (!planned.ok()) return fail(planned.status());
  if (auto status = check_times(arguments, *planned); !status.ok()) return fail(status);
  if (auto status = check_can_save(planned->job); !status.ok()) return fail(status);
  const jobspec::ResolvedJob& job = planned->job;
  for (const std::string& warning : job.warnings) warn(warning);
  const jobspec::Topology& topology = planned->machines.topology;
  const auto memory = forecast(*planned, FittingChanges::kFind, arguments.timeline);
  if (!memory.ok()) return fail(memory.status());
  int code = 0;
  std::optional<StepFigures> figures;
  if (memory->contains("time"))
    figures = step_figures(job, planned->machines, *memory, arguments.prices);
  const std::string known = known_from(planned->machines, planned->calibration);
  if (arguments.json) {
    nlohmann::json out = {{"device", topology.device},
                          {"topology", topology.name},
                          {"nodes", job.spec.nodes()},
                          {"ranks_per_node", job.spec.ranks_per_node()},
                          {"mesh", job.mesh.to_string()},
                          {"sequences", jobspec::global_batch_size(job.mesh, job.train)},
                          {"memory", *memory},
                          {"config", trainer::to_json(job.train)},
                          {"warnings", job.warnings}};
    if (figures) {
      out["step"] = to_json(*figures);
      out["step"]["parts"] = (*memory)["time"]["parts"];
      out["step"]["known"] = known;
    }
    code = print_result(out.dump(2) + "\n");
  } else {
    std::string text = describe_plan(job, planned->machines, *memory);
    if (figures) text += describe_step_time(job, planned->machines, *memory, *figures, known);
    code = print_result(text);
  }
  if ((*memory)["fits"].get<bool>()) {
    const absl::Status saved = save_plan(job, planned->machines, *memory);
    return code != 0 || saved.ok() ? code : fail(saved);
  }
  if (code != 0) return code;
  return fail(absl::InvalidArgumentError((*memory)["problem"].get<std::string>()));
}

}  // namespace

void declare_plan(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "Compute the memory of a job, and the time of its step, on machines that you need not have: "
      "memory per device, for the rank\nof each pipeline stage that needs the most, from the plan "
      "with which the trainer allocates it; time from the work that\nthe trainer does. A job that "
      "does not fit gets the error of a run, with values that fit.");
  add_config_arguments(*command, arguments->job, true);
  command
      ->add_option("--vary", arguments->vary,
                   "Print a table with a line per value; several keys: per combination of values")
      ->type_name("KEY=VALUE,VALUE,…");
  add_search_options(*command, arguments->search);
  command
      ->add_option("--compare", arguments->compare,
                   "Print two plans side by side: FILE's and that of the config, or those without "
                   "and with the words")
      ->type_name("FILE|'KEY=VALUE …'");
  command
      ->add_option("--price", arguments->prices.price,
                   "Price of a GPU-hour, for the cost of the run")
      ->type_name("PRICE");
  command
      ->add_option("--kwh-price", arguments->prices.kwh_price,
                   "Price of a kWh, for the cost of the devices' energy")
      ->type_name("PRICE");
  command
      ->add_option("--failure-rate", arguments->prices.failure_rate,
                   "Interruptions per GPU-hour. Default: those of the Llama 3 report, 2.0e-5")
      ->type_name("RATE");
  command
      ->add_option("--restart-seconds", arguments->prices.restart_seconds,
                   "Time from an interruption to the next step. Default: 300")
      ->type_name("SECONDS");
  command
      ->add_option(
          "--timeline", arguments->timeline,
          "Write a picture of one step, with a few micro-batches of a rank: FILE.json (Chrome "
          "trace, Perfetto) or FILE.svg")
      ->type_name("FILE");
  command
      ->add_option("--program", arguments->program,
                   "The program whose calibration (configs/calibration) forecasts the time. "
                   "Default: muster")
      ->type_name("NAME");
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
      "  muster plan configs/base.yml model_name=llama2-70b compile_topology=h100-64 --search\n"
      "  muster plan --compare A.yml B.yml compile_topology=h100-64\n"
      "  muster plan configs/base.yml model_name=llama2-7b compile_topology=h100-8 "
      "compiled_trainstep_file=7b.plan      # runs with this key must match the plan\n"
      "Topologies: configs/topologies; your own may lie in the folder topologies beside your "
      "base.yml.\n"
      "Exit codes: 0 the job fits, or --vary or --compare is given; 2 it does not fit, or "
      "no setting of --search fits; 130 Ctrl-C.");
  on_call(*command, action, arguments, plan);
}

}  // namespace muster::cli

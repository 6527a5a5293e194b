// muster config show: prints the resolved config and the origin of each value.
#include <unistd.h>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "cli/command.h"
#include "cli/jobs/job_arguments.h"
#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "common/text/number_text.h"
#include "common/text/with_commas.h"
#include "jobspec/dialects/variables.h"
#include "jobspec/explain.h"
#include "trainer_core/model/param_spec.h"

namespace muster::cli {
namespace {

struct ShowOptions {
  JobArguments job;
  bool changed = false;
  bool variables = false;
  bool json = false;
};

// Returns "derived", with the value in the config.
std::string source_of(const jobspec::ExplainedKey& row) {
  if (row.stated_origin.empty()) return row.origin;
  return absl::StrCat(row.origin, ": ", row.stated_origin, " has ", jobspec::show(row.stated));
}

std::string as_yaml(const std::vector<jobspec::ExplainedKey>& rows) {
  // Wider lines, such as MaxText's lists of axes, push their origin to the right.
  constexpr size_t kColumn = 48;
  std::string text;
  std::string_view topic;
  for (const jobspec::ExplainedKey& row : rows) {
    if (row.topic != topic) {
      topic = row.topic;
      absl::StrAppend(&text, text.empty() ? "" : "\n", "# ---- ", av(topic), "\n");
    }
    const std::string line = absl::StrCat(row.key, ": ", row.value.dump());
    absl::StrAppend(
        &text, line, std::string(line.size() < kColumn ? kColumn - line.size() + 2 : 2, ' '),
        coloured(STDOUT_FILENO, Colour::kDim, absl::StrCat("# ", source_of(row))), "\n");
  }
  return text;
}

nlohmann::json as_json(const std::vector<jobspec::ExplainedKey>& rows) {
  auto out = nlohmann::json::object();
  for (const jobspec::ExplainedKey& row : rows) {
    out[row.key] = {{"value", row.value}, {"origin", row.origin}};
    if (row.stated_origin.empty()) continue;
    out[row.key]["stated"] = {{"value", row.stated}, {"origin", row.stated_origin}};
  }
  return out;
}

// Returns base.yml's name for a model that is defined by its own keys.
std::string name_of(const trainer::ModelConfig& model) {
  return model.name.empty() ? "default" : model.name;
}

// Returns "fsdp=8 (8 ranks)", or "1 rank".
std::string mesh_text(const Mesh& mesh) {
  const std::string text = mesh.to_string();
  if (mesh.ranks() == 1) return text;
  return absl::StrCat(text, " (", counted(static_cast<uint64_t>(mesh.ranks()), "rank"), ")");
}

// The table of environment variables, one per line.
int show_variables(bool json) {
  if (json) {
    auto out = nlohmann::json::array();
    for (const jobspec::Variable& row : jobspec::variables()) {
      out.push_back({{"name", row.name},
                     {"meaning", row.meaning},
                     {"source", row.source},
                     {"read_by", row.read_by}});
    }
    return print_result(out.dump(2) + "\n");
  }
  std::string text = absl::StrFormat("%-29s %s\n", "VARIABLE", "MEANING");
  for (const jobspec::Variable& row : jobspec::variables()) {
    absl::StrAppendFormat(
        &text, "%-29s %s %s\n", row.name, row.meaning,
        coloured(STDOUT_FILENO, Colour::kDim,
                 absl::StrCat("(of ", av(row.source), "; read by ", av(row.read_by), ")")));
  }
  absl::StrAppend(&text,
                  "\nA variable counts in front of a command and when it is exported; a word on "
                  "the line overrides it.\n");
  return print_result(text);
}

int show(const ShowOptions& options) {
  if (options.variables) return show_variables(options.json);
  JobArguments arguments = options.job;
  // As muster run, whose config it shows; a job on several nodes runs elsewhere.
  arguments.own_workers = arguments.nodes.value_or(1) == 1;
  const auto config = load_config(arguments);
  if (!config.ok()) return fail(config.status());
  const auto job = resolve_job(*config, arguments);
  if (!job.ok()) return fail(job.status());
  for (const std::string& warning : job->warnings) warn(warning);
  auto rows = jobspec::explain(*config, *job);
  if (options.changed) std::erase_if(rows, [](const auto& row) { return !row.is_changed; });
  const int64_t parameters = trainer::parameter_count(trainer::model_params(job->train.model));
  if (options.json) {
    const nlohmann::json out = {{"settings", as_json(rows)},
                                {"train_config", trainer::to_json(job->train)},
                                {"parameters", parameters},
                                {"nodes", job->spec.nodes()},
                                {"ranks_per_node", job->spec.ranks_per_node()},
                                {"output_directory", job->spec.output_directory()},
                                {"warnings", job->warnings}};
    return print_result(out.dump(2) + "\n");
  }
  return print_result(
      absl::StrCat(as_yaml(rows), rows.empty() ? "" : "\n", "# model: ", name_of(job->train.model),
                   ", ", with_commas(parameters), " parameters\n# mesh: ", mesh_text(job->mesh),
                   "\n# output: ", job->spec.output_directory(), "\n"));
}

}  // namespace

void declare_config(CLI::App& app, Action& action) {
  CLI::App* config = app.add_subcommand("config", "Inspect a config before it is used");
  config->require_subcommand(1);
  config->footer("Example:\n  muster config show configs/base.yml model_name=llama2-tiny");
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command =
      config->add_subcommand("show", "Print every key with its value and where it comes from");
  command->group("Commands");
  add_config_arguments(*command, options->job, true);
  add_rank_options(*command, options->job);
  command->add_flag("--changed", options->changed, "Only the keys that you have changed");
  CLI::Option* config_path = command->get_option("config");
  command->add_flag_callback(
      "--variables",
      [options, config_path] {
        options->variables = true;
        config_path->required(false);
      },
      "Only the environment variables that have a meaning here: theirs, and what reads them");
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster config show configs/base.yml model_name=llama2-7b steps=15\n"
      "  muster config show configs/base.yml model_name=gemma-2b --changed\n"
      "  muster config show CONFIG=GPT126M --fdl.MAX_STEPS=100                 # Pax\n"
      "  muster config show --module=text.gpt.c4_trainer --config=fuji-7B-v2   # AXLearn\n"
      "  muster config show configs/base.yml --json | jq .train_config");
  on_call(*command, action, options, show);
}

}  // namespace muster::cli

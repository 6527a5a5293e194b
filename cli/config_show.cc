// muster config show: what a config resolves to, and where each value comes from.
#include <unistd.h>

#include <absl/strings/str_cat.h>

#include "cli/command.h"
#include "cli/job_arguments.h"
#include "cli/terminal.h"

namespace muster::cli {
namespace {

struct ShowOptions {
  JobArguments job;
  bool json = false;
};

std::string as_yaml(const jobspec::Config& config) {
  size_t width = 0;
  std::vector<std::pair<std::string, std::string>> lines;
  for (const auto& [key, setting] : config.settings) {
    lines.emplace_back(absl::StrCat(key, ": ", setting.value.dump()), setting.origin);
    if (setting.layer != jobspec::Layer::kBaseFile)
      width = std::max(width, lines.back().first.size());
  }
  std::string text;
  for (const auto& [line, origin] : lines) {
    const size_t padding = line.size() < width ? width - line.size() : 0;
    absl::StrAppend(&text, line, std::string(padding + 2, ' '),
                    coloured(STDOUT_FILENO, Colour::kDim, absl::StrCat("# ", origin)), "\n");
  }
  return text;
}

int show(const ShowOptions& options) {
  const auto config = load_config(options.job);
  if (!config.ok()) return fail(config.status());
  const auto job = resolve_job(*config, options.job);
  if (!job.ok()) return fail(job.status());
  for (const std::string& warning : job->warnings) warn(warning);
  if (!options.json) {
    write_text(STDOUT_FILENO,
               absl::StrCat(as_yaml(*config), "# mesh: ", job->mesh.to_string(), " (",
                            job->mesh.ranks(), job->mesh.ranks() == 1 ? " rank)" : " ranks)",
                            "\n# output: ", job->spec.output_directory(), "\n"));
    return 0;
  }
  nlohmann::json out = {{"settings", nlohmann::json::object()},
                        {"train_config", trainer::to_json(job->train)},
                        {"nodes", job->spec.nodes()},
                        {"ranks_per_node", job->spec.ranks_per_node()},
                        {"output_directory", job->spec.output_directory()},
                        {"warnings", job->warnings}};
  for (const auto& [key, setting] : config->settings) {
    out["settings"][key] = {{"value", setting.value}, {"origin", setting.origin}};
  }
  write_text(STDOUT_FILENO, out.dump(2) + "\n");
  return 0;
}

}  // namespace

void declare_config(CLI::App& app, Action& action) {
  CLI::App* config = app.add_subcommand("config", "Look at a config before it is used");
  config->require_subcommand(1);
  config->footer("Example:\n  muster config show configs/base.yml model_name=llama2-tiny");
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command =
      config->add_subcommand("show", "Print every key with its value and where it comes from");
  command->group("Commands");
  add_config_arguments(*command, options->job, true);
  add_rank_options(*command, options->job);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster config show configs/base.yml model_name=llama2-7b steps=15\n"
      "  muster config show configs/base.yml --json | jq .train_config");
  on_call(*command, action, options, show);
}

}  // namespace muster::cli

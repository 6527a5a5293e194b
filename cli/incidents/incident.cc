// muster incident: what went wrong with jobs, the ranks that the evidence blames, and the actions
// taken.
#include <unistd.h>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/incidents/incident_view.h"
#include "cli/terminal/terminal.h"
#include "common/time/time.h"
#include "daemon/json/incident_json.h"

namespace muster::cli {
namespace {

struct IncidentListOptions {
  uint64_t job = 0;  // 0: incidents of all jobs
  CoordinatorTarget coordinator;
  bool json = false;
};

struct IncidentShowOptions {
  uint64_t incident = 0;
  CoordinatorTarget coordinator;
  bool json = false;
};

int list_incidents(const IncidentListOptions& options) {
  const auto incidents = Client(options.coordinator).list_incidents(options.job);
  if (!incidents.ok()) return fail(incidents.status());
  if (!options.json) {
    write_text(STDOUT_FILENO,
               describe_incident_list(*incidents, wall_clock_unix_ns(), columns_of(STDOUT_FILENO)));
    return 0;
  }
  nlohmann::json out = {{"incidents", nlohmann::json::array()}};
  for (const v1::Incident& incident : incidents->incidents()) {
    auto shown = daemon::incident_to_json(incident);
    if (!shown.ok()) return fail(shown.status());
    out["incidents"].push_back(*std::move(shown));
  }
  write_text(STDOUT_FILENO, out.dump(2) + "\n");
  return 0;
}

int show_incident(const IncidentShowOptions& options) {
  const auto incident = Client(options.coordinator).get_incident(options.incident);
  if (!incident.ok()) return fail(incident.status());
  if (options.json) {
    const auto shown = daemon::incident_to_json(*incident);
    if (!shown.ok()) return fail(shown.status());
    write_text(STDOUT_FILENO, shown->dump(2) + "\n");
    return 0;
  }
  StackView view;
  view.fd = STDOUT_FILENO;
  view.columns_max = columns_of(STDOUT_FILENO);
  const auto text = describe_incident(*incident, wall_clock_unix_ns(), view);
  if (!text.ok()) return fail(text.status());
  write_text(STDOUT_FILENO, *text);
  return 0;
}

void declare_incident_list(CLI::App& incident, Action& action) {
  auto options = std::make_shared<IncidentListOptions>();
  CLI::App* command = incident.add_subcommand("list", "Show incidents, newest first");
  command->group("Commands");
  add_job_argument(*command, options->job)->required(false)->description("Only those of this job");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster incident list\n"
      "  muster incident list 7 --json | jq -r '.incidents[].sentence'");
  on_call(*command, action, options, list_incidents);
}

void declare_incident_show(CLI::App& incident, Action& action) {
  auto options = std::make_shared<IncidentShowOptions>();
  CLI::App* command = incident.add_subcommand(
      "show", "Show one incident: the verdict, suspects, stacks and what was done");
  command->group("Commands");
  const auto take = [&number = options->incident](const std::string& text) {
    if (absl::SimpleAtoi(text, &number) && number > 0) return;
    throw CLI::ValidationError(absl::StrCat(
        "incident ", text, ": must be a positive number (see `muster incident list`)"));
  };
  command->add_option_function<std::string>("incident", take, "The incident's number")
      ->required()
      ->type_name("INCIDENT");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster incident show 3\n"
      "  muster incident show 3 --json | jq '.suspects[0]'");
  on_call(*command, action, options, show_incident);
}

}  // namespace

void declare_incident(CLI::App& app, Action& action) {
  CLI::App* incident = app.add_subcommand(
      "incident", "Show what went wrong with jobs, which rank is to blame, and what was done");
  incident->require_subcommand(1);
  incident->footer("Example:\n  muster incident list && muster incident show 3");
  declare_incident_list(*incident, action);
  declare_incident_show(*incident, action);
}

}  // namespace muster::cli

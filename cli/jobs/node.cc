// muster node: lists nodes, and excludes or admits them for placement.
#include <array>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/job_arguments.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/moment.h"
#include "cli/jobs/node_checks.h"
#include "cli/jobs/node_view.h"
#include "cli/terminal/terminal.h"
#include "common/text/escape.h"
#include "common/time/time.h"
#include "daemon/json/job_json.h"

namespace muster::cli {
namespace {

struct NodeOptions {
  std::string node;
  std::string reason;
  int64_t seconds = 0;  // 0: until a user admits it
  bool evacuate = false;
  std::string at;  // the time of a planned drain; "": none
  CoordinatorTarget coordinator;
  bool json = false;
};

int print_node(const v1::WorkerInfo& worker, bool is_json) {
  if (is_json) return print_result(daemon::worker_to_json(worker).dump(2) + "\n");
  return print_result(describe_node(worker, wall_clock_unix_ns()) + "\n");
}

int list_nodes(const NodeOptions& options) {
  const auto workers = Client(options.coordinator).list_workers();
  if (!workers.ok()) return fail(workers.status());
  if (!options.json) return print_result(describe_node_list(*workers, wall_clock_unix_ns()));
  nlohmann::json out = {{"nodes", nlohmann::json::array()}};
  for (const auto& worker : workers->workers())
    out["nodes"].push_back(daemon::worker_to_json(worker));
  return print_result(out.dump(2) + "\n");
}

int drain_node(const NodeOptions& options) {
  for (const auto& [what, text] : {std::pair("NODE", &options.node), {"--reason", &options.reason}})
    if (auto status = check_text(what, *text); !status.ok()) return fail(status);
  const auto at = moment_of(options.at, wall_clock_unix_ns(), absl::LocalTimeZone());
  if (!at.ok()) return fail(at.status());
  const auto worker =
      Client(options.coordinator)
          .exclude_worker(options.node, options.reason, options.seconds, /*evacuate=*/false, *at,
                          /*late=*/true);
  const bool has_drain = worker.ok() && (worker->drain().unix_ns() == *at ||
                                         worker->exclusion().drain_unix_ns() == *at);
  if (worker.ok() && !has_drain)
    return fail(absl::FailedPreconditionError(absl::StrCat(
        options.node,
        " is excluded, but its jobs stay: the coordinator is of an earlier version, which has no "
        "planned drains; near the time, use muster node exclude --evacuate")));
  return worker.ok() ? print_node(*worker, options.json) : fail(worker.status());
}

int exclude_node(const NodeOptions& options) {
  for (const auto& [what, text] : {std::pair("NODE", &options.node), {"--reason", &options.reason}})
    if (auto status = check_text(what, *text); !status.ok()) return fail(status);
  const auto worker =
      Client(options.coordinator)
          .exclude_worker(options.node, options.reason, options.seconds, options.evacuate);
  return worker.ok() ? print_node(*worker, options.json) : fail(worker.status());
}

int admit_node(const NodeOptions& options) {
  if (auto status = check_text("NODE", options.node); !status.ok()) return fail(status);
  const auto worker = Client(options.coordinator).admit_worker(options.node);
  return worker.ok() ? print_node(*worker, options.json) : fail(worker.status());
}

// Parses "90s", "30m", "2h" or "7d".
int64_t seconds_of(const std::string& text) {
  constexpr int64_t kMax = int64_t{10} * 365 * 24 * 3600;
  const std::string units = "smhd";
  constexpr std::array<int64_t, 4> kSeconds = {1, 60, 3600, 86400};
  int64_t number = 0;
  const size_t unit = text.empty() ? std::string::npos : units.find(text.back());
  const bool ok = unit != std::string::npos &&
                  absl::SimpleAtoi(text.substr(0, text.size() - 1), &number) && number > 0 &&
                  number <= kMax / kSeconds.at(unit);
  if (ok) return number * kSeconds.at(unit);
  throw CLI::ValidationError(absl::StrCat(
      "--for ", printable(text, 64), ": must be a time like 30m, 2h or 7d, at most ten years"));
}

CLI::App* add_command(CLI::App& node, Action& action, const char* name, const char* what,
                      const std::shared_ptr<NodeOptions>& options, int (*run)(const NodeOptions&)) {
  CLI::App* command = node.add_subcommand(name, what);
  command->group("Commands");
  if (run != list_nodes) {
    command->add_option("node", options->node, "The worker's name")->required()->type_name("NODE");
  }
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  on_call(*command, action, options, run);
  return command;
}

}  // namespace

void declare_node(CLI::App& app, Action& action) {
  CLI::App* node = app.add_subcommand(
      "node", "Show which nodes take ranks and which are excluded, and change it");
  node->require_subcommand(1);
  node->footer("Example:\n  muster node list && muster node admit node7");

  add_command(*node, action, "list", "Show nodes, and why some are excluded",
              std::make_shared<NodeOptions>(), list_nodes)
      ->footer(
          "Examples:\n"
          "  muster node list\n"
          "  muster node list --json | jq -r '.nodes[] | select(.exclusion) | .name'");

  const auto excluded = std::make_shared<NodeOptions>();
  CLI::App* exclude = add_command(
      *node, action, "exclude",
      "Place no more ranks on a node; running jobs continue there, or move with --evacuate",
      excluded, exclude_node);
  exclude->add_option("--reason", excluded->reason, "The reason, shown by muster node list")
      ->required();
  exclude
      ->add_option_function<std::string>(
          "--for", [excluded](const std::string& text) { excluded->seconds = seconds_of(text); },
          "How long: 30m, 2h, 7d (default: until it is admitted)")
      ->type_name("TIME");
  exclude->add_flag("--evacuate", excluded->evacuate,
                    "Jobs on the node save a checkpoint and continue on other nodes");
  exclude->footer(
      "Examples:\n"
      "  muster node exclude node7 --reason 'fan 3 is broken'\n"
      "  muster node exclude node7 --reason 'kernel update' --for 2h --evacuate");

  const auto drained = std::make_shared<NodeOptions>();
  CLI::App* drain = add_command(
      *node, action, "drain",
      "Move the jobs of a node in time for a planned maintenance; it gets no new ranks in the hour "
      "before",
      drained, drain_node);
  drain
      ->add_option("--at", drained->at,
                   "When the node goes: 22:30, 2026-12-01T08:00 (local time), or in 30m, 2h, 7d")
      ->required()
      ->type_name("TIME");
  drain->add_option("--reason", drained->reason, "The reason, shown by muster node list")
      ->required();
  drain
      ->add_option_function<std::string>(
          "--for", [drained](const std::string& text) { drained->seconds = seconds_of(text); },
          "How long the node gets no ranks from now on: at least until --at (default: from an hour "
          "before --at until it is admitted)")
      ->type_name("TIME");
  drain->footer(
      "Jobs train until shortly before, then save and continue on a spare or another node.\n"
      "Examples:\n"
      "  muster node drain node7 --at 22:30 --reason 'kernel update'\n"
      "  muster node drain node7 --at 30m --reason 'kernel update'\n"
      "  muster node admit node7");

  declare_node_checks(*node, action);
  add_command(*node, action, "admit", "Place ranks on a node again, whatever excluded it",
              std::make_shared<NodeOptions>(), admit_node)
      ->footer("Examples:\n  muster node admit node7");
}

}  // namespace muster::cli

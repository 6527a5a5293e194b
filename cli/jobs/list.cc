// muster list: prints jobs or workers.
#include <unistd.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/job_view.h"
#include "cli/terminal/terminal.h"
#include "common/time/time.h"
#include "daemon/json/job_json.h"

namespace muster::cli {
namespace {

struct ListOptions {
  CoordinatorTarget coordinator;
  bool active = false;
  bool all = false;
  bool workers = false;
  bool json = false;
};

int list_workers(const ListOptions& options) {
  const auto workers = Client(options.coordinator).list_workers();
  if (!workers.ok()) return fail(workers.status());
  if (!options.json) {
    return print_result(describe_workers(*workers));
  }
  nlohmann::json out = {{"workers", nlohmann::json::array()}};
  for (const auto& worker : workers->workers())
    out["workers"].push_back(daemon::worker_to_json(worker));
  return print_result(out.dump(2) + "\n");
}

int list(const ListOptions& options) {
  if (options.workers) return list_workers(options);
  const auto jobs = Client(options.coordinator).list_jobs(options.active, options.all);
  if (!jobs.ok()) return fail(jobs.status());
  if (!options.json) {
    return print_result(describe_job_list(*jobs, wall_clock_unix_ns()));
  }
  nlohmann::json out = {{"jobs", nlohmann::json::array()}};
  for (const auto& job : jobs->jobs()) out["jobs"].push_back(daemon::job_to_json(job));
  out["more"] = jobs->more();
  return print_result(out.dump(2) + "\n");
}

}  // namespace

void declare_list(CLI::App& app, Action& action) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command =
      app.add_subcommand("list", "Show the coordinator's jobs, newest first, or its workers");
  command->add_flag("--active", options->active, "Only jobs that have not ended");
  command->add_flag("--all", options->all, "Also those that are older than the newest 1,000");
  command->add_flag("--workers", options->workers, "Workers and their slots instead of jobs");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster list\n"
      "  muster list --active --json | jq -r '.jobs[].spec.name'\n"
      "  muster list --workers --coordinator head:7070");
  on_call(*command, action, options, list);
}

}  // namespace muster::cli

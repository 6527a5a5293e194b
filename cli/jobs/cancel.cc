// muster cancel: ends a job, after a checkpoint by default.
#include <unistd.h>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/job_view.h"
#include "cli/terminal/terminal.h"
#include "daemon/json/job_json.h"

namespace muster::cli {
namespace {

struct CancelOptions {
  uint64_t job = 0;
  std::string array;  // empty: `job`
  bool force = false;
  CoordinatorTarget coordinator;
  bool json = false;
};

// Cancels the tasks that have not ended. A task that ends meanwhile is no error.
int cancel_array(const CancelOptions& options) {
  Client client(options.coordinator);
  const auto jobs = client.list_jobs(/*active_only=*/true, /*all=*/true);
  if (!jobs.ok()) return fail(jobs.status());
  nlohmann::json out = {{"array", options.array}, {"jobs", nlohmann::json::array()}};
  size_t cancelled = 0;
  absl::Status trouble;
  for (const v1::Job& task : jobs->jobs()) {
    if (task.spec().array() != options.array) continue;
    const auto job = client.cancel_job(task.id(), options.force);
    if (absl::IsFailedPrecondition(job.status())) continue;
    if (!job.ok()) {
      trouble = job.status();
      if (!absl::IsPermissionDenied(trouble)) break;
      continue;
    }
    ++cancelled;
    out["jobs"].push_back(daemon::job_to_json(*job));
  }
  if (cancelled == 0 && trouble.ok())
    return fail(absl::NotFoundError(
        absl::StrCat("no task of an array ", options.array, " is left: see `muster list`")));
  const int code =
      print_result(options.json ? out.dump(2) + "\n"
                                : absl::StrCat(cancelled, cancelled == 1 ? " task" : " tasks",
                                               " of array ", options.array, " cancelled\n"));
  return trouble.ok() ? code : fail(trouble);
}

int cancel(const CancelOptions& options) {
  if (!options.array.empty()) return cancel_array(options);
  const auto job = Client(options.coordinator).cancel_job(options.job, options.force);
  if (!job.ok()) return fail(job.status());
  return print_result((options.json ? daemon::job_to_json(*job).dump(2) : headline(*job)) + "\n");
}

}  // namespace

void declare_cancel(CLI::App& app, Action& action) {
  auto options = std::make_shared<CancelOptions>();
  CLI::App* command = app.add_subcommand("cancel", "End a job; its ranks save a checkpoint first");
  CLI::Option* job = add_job_argument(*command, options->job);
  const auto take_array = [&given = *options, job](const std::string& array) {
    given.array = array;
    job->required(false);
  };
  command
      ->add_option_function<std::string>(
          "--array", take_array,
          "All tasks of this array, by the id that `muster submit --array` has printed")
      ->type_name("ID")
      ->excludes(job);
  command->add_flag("--force", options->force, "Kill the ranks at once, without a checkpoint");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster cancel 7\n"
      "  muster cancel 7 --force\n"
      "  muster cancel --array 5a3c0f9e81d2b764");
  on_call(*command, action, options, cancel);
}

}  // namespace muster::cli

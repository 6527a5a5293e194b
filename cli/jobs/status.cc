// muster status: prints one job in full.
#include <unistd.h>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/job_updates.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/job_why.h"
#include "cli/k8s/k8s_why.h"
#include "cli/plan/admission.h"
#include "cli/terminal/terminal.h"
#include "common/files/find_program.h"
#include "common/time/time.h"
#include "daemon/json/job_json.h"

namespace muster::cli {
namespace {

struct StatusOptions {
  uint64_t job = 0;
  bool watch = false;
  bool why = false;
  std::string namespace_name;
  std::string selector = "app.kubernetes.io/name=muster";
  CoordinatorTarget coordinator;
  bool json = false;
};

// Prints a line per change (with --json an object per line) until the job has ended. Returns the
// job's exit code.
int watch(const StatusOptions& options, Client& client) {
  JobUpdates notice;
  int exit_code = 0, error = 0;
  const auto take = [&](const v1::Job& job) {
    exit_code = job.exit_code();
    std::string text;
    if (options.json) {
      v1::Job all = job;
      // If the coordinator is lost, the stream's end reports it.
      client.add_ranks(all).IgnoreError();
      text = daemon::job_to_json(all).dump() + "\n";
    }
    if (!options.json)
      for (const std::string& sentence : notice.update(job)) text += sentence + "\n";
    if (write_text(STDOUT_FILENO, text)) return true;
    error = errno;
    return false;
  };
  const absl::Status status = with_reconnection(
      client, [&] { return client.watch_job(options.job, take); },
      [](const absl::Status& loss) { warn(loss_text(loss)); });
  if (error != 0 && error != EPIPE) return end_of_output(error);
  return status.ok() ? exit_code : fail(status);
}

// A program gets all ranks; a person reads the first ones.
Client::Ranks ranks_of(const StatusOptions& options) {
  return options.json ? Client::Ranks::kAll : Client::Ranks::kFirstPage;
}

// Prints the job from the coordinator; if it waits, its needs and the workers; and its pods from
// Kubernetes. Each part may be available without the others.
int status_and_why(const StatusOptions& options, Client& client) {
  absl::StatusOr<v1::Job> job = absl::NotFoundError("");
  if (options.job > 0) job = client.get_job(options.job, ranks_of(options));
  // On a cluster without Kubernetes the job and the fleet are the whole answer.
  const bool needs_pods = options.job == 0 || !options.namespace_name.empty();
  const bool queries_pods = needs_pods || find_program_in_path("kubectl").ok();
  absl::StatusOr<K8sReport> report = absl::NotFoundError("");
  if (queries_pods) report = query_k8s(options.namespace_name, options.selector);
  nlohmann::json both = nlohmann::json::object();
  std::string text;
  if (job.ok()) {
    both["job"] = daemon::job_to_json(*job);
    text = describe_job(*job, wall_clock_unix_ns());
  }
  absl::Status fleet;
  if (job.ok() && job->state() == v1::QUEUED) {
    const auto workers = client.list_workers();
    fleet = workers.status();
    if (workers.ok()) {
      const JobNeeds needs =
          needs_of(job->spec(), job->attempt() > 0, planned_gpu_bytes(job->spec(), *workers));
      both["fleet"] = why_to_json(needs, *workers);
      absl::StrAppend(&text, "\n", describe_why(needs, *workers));
    }
  }
  if (report.ok()) {
    both["kubernetes"] = k8s_to_json(*report);
    text += k8s_text(*report, options.namespace_name);
  }
  const int printed = print_result(options.json ? both.dump(2) + "\n" : text);
  int code = options.job > 0 && !job.ok() ? fail(job.status()) : printed;
  if (!fleet.ok()) code = fail(fleet);
  if (needs_pods && !report.ok()) {
    code = fail(report.status());
  } else if (queries_pods && !report.ok()) {
    warn(std::string(report.status().message()));
  }
  return code;
}

int status(const StatusOptions& options) {
  Client client(options.coordinator);
  if (options.why) return status_and_why(options, client);
  if (options.watch) return watch(options, client);
  const auto job = client.get_job(options.job, ranks_of(options));
  if (!job.ok()) return fail(job.status());
  return print_result(options.json ? daemon::job_to_json(*job).dump(2) + "\n"
                                   : describe_job(*job, wall_clock_unix_ns()));
}

}  // namespace

void declare_status(CLI::App& app, Action& action) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* command =
      app.add_subcommand("status", "Show one job: state and its reason, ranks, faults");
  CLI::Option* job = add_job_argument(*command, options->job);
  command->add_flag_callback(
      "--why",
      [&given = *options, job] {
        given.why = true;
        job->required(false);
      },
      "Also show what a waiting job needs and what each worker has; and, if kubectl is "
      "installed, why Muster's pods do not run, according to Kubernetes: a missing Secret, a "
      "quota, no free node, an image. For the pods alone JOB may be omitted");
  command
      ->add_option("-n,--namespace", options->namespace_name,
                   "For --why: the namespace (default: kubectl's)")
      ->type_name("NAME")
      ->group("Kubernetes");
  command->add_option("--selector", options->selector, "For --why: labels of Muster's pods")
      ->type_name("LABELS")
      ->capture_default_str()
      ->group("Kubernetes");
  command->add_flag("-w,--watch", options->watch, "Print each change until the job has ended");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster status 7\n"
      "  muster status 7 --json | jq .state\n"
      "  muster status 7 --why            # why does it wait?\n"
      "  muster status 7 --why -n training\n"
      "  muster status 7 --watch      # survives a restart of the coordinator; ends with the job's "
      "exit code");
  on_call(*command, action, options, status);
}

}  // namespace muster::cli

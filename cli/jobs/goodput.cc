// muster goodput: goodput and lost time of jobs.
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/goodput_view.h"
#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

struct GoodputOptions {
  std::vector<uint64_t> jobs;  // empty: all jobs of the coordinator
  CoordinatorTarget coordinator;
  bool json = false;
};

absl::StatusOr<std::vector<v1::Job>> requested_jobs(const GoodputOptions& options) {
  Client client(options.coordinator);
  std::vector<v1::Job> jobs;
  if (options.jobs.empty()) {
    auto all = client.list_jobs(/*active_only=*/false, /*all=*/true);
    if (!all.ok()) return all.status();
    jobs.assign(all->jobs().begin(), all->jobs().end());
  }
  for (const uint64_t id : options.jobs) {
    auto job = client.get_job(id);
    if (!job.ok()) return job.status();
    jobs.push_back(*std::move(job));
  }
  return jobs;
}

int goodput(const GoodputOptions& options) {
  const auto jobs = requested_jobs(options);
  if (!jobs.ok()) return fail(jobs.status());
  return print_result(options.json ? goodput_report_to_json(*jobs).dump(2) + "\n"
                                   : describe_goodput(*jobs));
}

}  // namespace

void declare_goodput(CLI::App& app, Action& action) {
  auto options = std::make_shared<GoodputOptions>();
  CLI::App* command = app.add_subcommand(
      "goodput", "Show how much of its time each job made progress, and what the rest was lost to");
  const auto take = [&jobs = options->jobs](const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      uint64_t job = 0;
      if (!absl::SimpleAtoi(word, &job) || job == 0) {
        throw CLI::ValidationError(
            absl::StrCat("job ", word, ": must be a positive number (see `muster list`)"));
      }
      jobs.push_back(job);
    }
  };
  command
      ->add_option_function<std::vector<std::string>>("jobs", take,
                                                      "The jobs' numbers; all, ended ones included")
      ->type_name("JOB");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster goodput\n"
      "  muster goodput 7 9\n"
      "  muster goodput --json | jq '.all.ettr'");
  on_call(*command, action, options, goodput);
}

}  // namespace muster::cli

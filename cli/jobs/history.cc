// muster history: prints the attempts of a job.
#include <unistd.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/history_view.h"
#include "cli/jobs/stack_view.h"
#include "cli/terminal/terminal.h"
#include "common/time/time.h"
#include "daemon/help.h"
#include "daemon/json/job_json.h"

namespace muster::cli {
namespace {

// The number of attempts that a coordinator stores for each job.
constexpr int kLimitMax = 1'000;

struct HistoryOptions {
  uint64_t job = 0;
  int limit = 100;
  CoordinatorTarget coordinator;
  bool json = false;
};

int history(const HistoryOptions& options) {
  const auto attempts =
      Client(options.coordinator).job_history(options.job, static_cast<uint32_t>(options.limit));
  if (!attempts.ok()) return fail(attempts.status());
  return print_result(
      options.json ? daemon::history_to_json(*attempts).dump(2) + "\n"
                   : describe_history(*attempts, wall_clock_unix_ns(), columns_of(STDOUT_FILENO)));
}

}  // namespace

void declare_history(CLI::App& app, Action& action) {
  auto options = std::make_shared<HistoryOptions>();
  CLI::App* command = app.add_subcommand(
      "history",
      "Show the attempts of a job, newest first: when, where, which steps, and why each ended");
  add_job_argument(*command, options->job);
  daemon::add_count(*command, "--limit", options->limit, "Number of attempts", 1, kLimitMax);
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster history 7\n"
      "  muster history 7 --json | jq -r '.attempts[].end'\n"
      "  muster logs 7 --attempt 2      # what an attempt's rank 0 wrote\n"
      "  muster incident show 3         # the fault that ended an attempt");
  on_call(*command, action, options, history);
}

}  // namespace muster::cli

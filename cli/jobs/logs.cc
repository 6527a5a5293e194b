// muster logs: prints the output of ranks.
#include <unistd.h>

#include <charconv>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/log_printer.h"
#include "cli/terminal/terminal.h"
#include "daemon/help.h"

namespace muster::cli {
namespace {

struct LogsOptions {
  uint64_t job = 0;
  bool follow = false;
  std::string rank = "0";
  uint32_t attempt = 0;
  CoordinatorTarget coordinator;
  bool no_merge = false;
  bool json = false;
};

absl::StatusOr<int32_t> parse_rank(const std::string& text) {
  if (text == "all") return -1;
  int32_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error == std::errc() && end == text.data() + text.size() && rank >= 0) return rank;
  return absl::InvalidArgumentError(absl::StrCat("--rank ", text, ": expected a rank or all"));
}

int logs(const LogsOptions& options) {
  const auto rank = parse_rank(options.rank);
  if (!rank.ok()) return fail(rank.status());
  v1::FollowLogsRequest request;
  request.set_job_id(options.job);
  request.set_rank(*rank);
  request.set_attempt(options.attempt);
  request.set_follow(options.follow);
  Client client(options.coordinator);
  Output output(STDOUT_FILENO), notice(STDERR_FILENO);
  LogPrinter printer(output, notice,
                     {.main_rank = *rank,
                      .json = options.json,
                      .merge = !options.no_merge,
                      .live = options.follow});
  // After a reconnection the stream restarts; the printer skips what it has printed.
  const auto stream = [&] {
    return client.follow_logs(request,
                              [&](const v1::LogChunk& chunk) { return printer.take(chunk); });
  };
  const absl::Status status =
      options.follow
          ? with_reconnection(client, stream,
                              [&](const absl::Status& loss) { printer.notice(loss_text(loss)); })
          : stream();
  printer.finish();
  return status.ok() ? end_of_output(output.error()) : fail(status);
}

}  // namespace

void declare_logs(CLI::App& app, Action& action) {
  auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "Print what a job's ranks wrote");
  add_job_argument(*command, options->job);
  command->add_flag("-f,--follow", options->follow,
                    "Follow new output, across attempts, until the job has ended");
  command
      ->add_option("--rank", options->rank,
                   "A rank, or all: merged by time, each line with its rank; equal lines of "
                   "several ranks are merged into one")
      ->capture_default_str()
      ->type_name("N|all");
  command->add_flag("--no-merge", options->no_merge,
                    "With --rank all: do not merge equal lines of several ranks");
  daemon::add_count(*command, "--attempt", options->attempt, "An attempt; 0 is the newest", 0,
                    1'000'000)
      ->capture_default_str();
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster logs 7\n"
      "  muster logs -f 7             # survives a restart of the coordinator\n"
      "  muster logs 7 --rank all --attempt 1\n"
      "  muster logs 7 --rank all --json | jq -r 'select(.rank == 2).line'   # an object per line");
  on_call(*command, action, options, logs);
}

}  // namespace muster::cli

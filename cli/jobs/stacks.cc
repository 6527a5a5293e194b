// muster stacks: prints the current stacks of a running job's ranks.
#include <unistd.h>

#include <chrono>
#include <thread>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/stack_view.h"
#include "cli/terminal/terminal.h"
#include "common/job/limits.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "daemon/evidence_messages.h"
#include "daemon/help.h"
#include "daemon/json/stack_json.h"

namespace muster::cli {
namespace {

constexpr int32_t kAllRanks = -1;
constexpr double kWatchSecondsDefault = 2;
constexpr double kWatchSecondsMax = 86'400;
constexpr size_t kRanksReadMax = size_t{kNodesMax} * kRanksPerNodeMax;
// Cursor home and clear below: flickers less than clearing first.
constexpr char kHome[] = "\x1b[H\x1b[J";

struct StacksOptions {
  uint64_t job = 0;
  int32_t rank = kAllRanks;
  bool threads = false;
  bool dumps = false;
  double watch_seconds = 0;  // 0: once
  CoordinatorTarget coordinator;
  bool json = false;
};

std::string describe(const v1::DumpJobStacksResponse& dump, const StackTree& stacks,
                     const std::vector<RankEvidence>& ranks, const StackView& view) {
  std::string text =
      absl::StrCat("job ", dump.job_id(), ", attempt ", dump.attempt(), ": ", ranks.size(),
                   ranks.size() == 1 ? " rank" : " ranks", "\n\n", describe_stacks(stacks, view));
  const std::string problems = describe_stack_problems(ranks, view);
  if (!problems.empty()) absl::StrAppend(&text, "\n", problems);
  for (const RankEvidence& rank : ranks) {
    for (const std::string& file : rank.files)
      absl::StrAppend(&text, "rank ", rank.rank,
                      ": a dump of its program: ", escape_controls(file, Layout::kOneLine), "\n");
  }
  for (const std::string& worker : dump.silent_workers()) {
    absl::StrAppend(&text,
                    coloured(view.fd, Colour::kYellow,
                             absl::StrCat("worker ", escape_controls(worker, Layout::kOneLine),
                                          " did not answer")),
                    "\n");
  }
  return text;
}

absl::Status show(const StacksOptions& options, Client& client) {
  const auto dump = client.dump_stacks(options.job, options.rank, options.dumps);
  if (!dump.ok()) return dump.status();
  const auto stacks = daemon::stack_tree_from_proto(dump->stacks());
  if (!stacks.ok()) return stacks.status();
  const auto ranks = daemon::evidence_from_proto(dump->ranks(), kRanksReadMax);
  const bool watching = options.watch_seconds > 0;
  if (options.json) {
    // An object is one line with --watch.
    write_text(STDOUT_FILENO,
               daemon::dump_to_json(*dump, *stacks, ranks).dump(watching ? -1 : 2) + "\n");
    return absl::OkStatus();
  }
  StackView view;
  view.fd = STDOUT_FILENO;
  view.columns_max = columns_of(STDOUT_FILENO);
  view.all_threads = options.threads;
  const bool clears = watching && takes_escapes(STDOUT_FILENO);
  const std::string text = describe(*dump, *stacks, ranks, view);
  if (!write_text(STDOUT_FILENO, absl::StrCat(clears ? kHome : "", text)))
    return absl::CancelledError("the output is closed");
  if (watching && !clears) write_text(STDOUT_FILENO, "\n");
  return absl::OkStatus();
}

// A job between two attempts has no stacks now, but may have some later.
bool has_ended(Client& client, uint64_t id) {
  const auto job = client.get_job(id);
  return !job.ok() || is_terminal_state(job->state());
}

int stacks(const StacksOptions& options) {
  Client client(options.coordinator);
  absl::Status status = show(options, client);
  const bool watched = status.ok() && options.watch_seconds > 0;
  while (watched && !absl::IsCancelled(status)) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.watch_seconds));
    status = show(options, client);
    if (status.ok() || absl::IsCancelled(status)) continue;
    if (!absl::IsFailedPrecondition(status)) break;
    warn(sv(status.message()));
    if (has_ended(client, options.job)) return 0;
  }
  return status.ok() || absl::IsCancelled(status) ? 0 : fail(status);
}

}  // namespace

void declare_stacks(CLI::App& app, Action& action) {
  auto options = std::make_shared<StacksOptions>();
  CLI::App* command =
      app.add_subcommand("stacks", "Show where the ranks of a running job are now; it trains on");
  add_job_argument(*command, options->job);
  command->add_option("--rank", options->rank, "Only this rank")
      ->type_name("RANK")
      ->transform(daemon::whole_number(0, kNodesMax * kRanksPerNodeMax - 1));
  command->add_flag("--threads", options->threads, "All threads, not only the main threads");
  CLI::Option* const dumps = command->add_flag(
      "--dumps", options->dumps,
      "Also dumps that the programs write: NCCL's flight recorder, GPU core dumps");
  command
      ->add_option_function<std::vector<double>>(
          "-w,--watch",
          [options = options.get()](const std::vector<double>& seconds) {
            options->watch_seconds = seconds.empty() ? kWatchSecondsDefault : seconds.front();
          },
          "Repeat every SECONDS (default: 2) until the job has ended or Ctrl-C")
      ->expected(0, 1)
      ->type_name("[SECONDS]")
      ->excludes(dumps)
      ->check(daemon::number(0.1, kWatchSecondsMax));
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Ranks with the same stack are shown together, as ranges, the largest group first and the "
      "innermost frame first.\nReading a rank stops each of its threads for some tens of "
      "microseconds.\n"
      "\n"
      "Examples:\n"
      "  muster stacks 7\n"
      "  muster stacks 7 --rank 3 --threads\n"
      "  muster stacks 7 --watch 5\n"
      "  muster stacks 7 --rank 3 --dumps\n"
      "  muster stacks 7 --json | jq '.classes[] | {count, top: .frames[0].text}'");
  on_call(*command, action, options, stacks);
}

}  // namespace muster::cli

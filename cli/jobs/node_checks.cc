#include "cli/jobs/node_checks.h"

#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/jobs/job_arguments.h"
#include "cli/jobs/node_checks_view.h"
#include "cli/terminal/terminal.h"
#include "common/process/exit_code.h"
#include "common/time/time.h"
#include "daemon/help.h"

namespace muster::cli {
namespace {

constexpr Duration kSweepPollPeriod = std::chrono::seconds(1);
constexpr double kMeasureSecondsMin = 0.1;
constexpr double kMeasureSecondsMax = 600;

struct CheckOptions {
  std::vector<std::string> nodes;
  bool deep = false;
  double seconds = 1;
  std::string storage;
  bool no_links = false;
  bool no_wait = false;
  bool show = false;
  CoordinatorTarget coordinator;
  bool json = false;
};

int print_sweep(const v1::NodeSweep& sweep, const CheckOptions& options) {
  const int printed =
      print_result(options.json ? sweep_to_json(sweep).dump(2) + "\n" : describe_sweep(sweep));
  if (printed != 0 || sweep.running() || is_good(sweep, options.nodes)) return printed;
  return to_int(ExitCode::kFailure);
}

int run_sweep(const CheckOptions& options) {
  Client client(options.coordinator);
  v1::CheckNodesRequest request;
  for (const std::string& node : options.nodes) {
    if (auto status = check_text("NODE", node); !status.ok()) return fail(status);
    request.add_workers(node);
  }
  request.set_seconds(options.seconds);
  request.set_storage_folder(options.storage);
  request.set_no_links(options.no_links);
  auto sweep = options.show ? client.node_sweep(0) : client.begin_sweep(request);
  if (!sweep.ok()) return fail(sweep.status());
  std::string stage;
  while (sweep->running() && !options.no_wait) {
    if (sweep->stage() != stage && !options.json)
      std::cerr << absl::StrCat("sweep ", sweep->id(), ": ", shown(sweep->stage()), "\n");
    stage = sweep->stage();
    std::this_thread::sleep_for(kSweepPollPeriod);
    const int64_t started = sweep->started_unix_ns();
    const uint64_t id = sweep->id();
    const absl::Status status = with_reconnection(
        client,
        [&] {
          sweep = client.node_sweep(id);
          return sweep.status();
        },
        [](const absl::Status& loss) { warn(loss_text(loss)); });
    if (absl::IsNotFound(status) || (sweep.ok() && sweep->started_unix_ns() != started)) {
      return fail(absl::AbortedError(
          "the coordinator was restarted, which has ended the sweep without a result; begin it "
          "again"));
    }
    if (!status.ok()) return fail(status);
  }
  return print_sweep(*sweep, options);
}

int show_history(const CheckOptions& options) {
  if (auto status = check_text("NODE", options.nodes.at(0)); !status.ok()) return fail(status);
  const auto checks = Client(options.coordinator).deep_checks_of(options.nodes.at(0));
  if (!checks.ok()) return fail(checks.status());
  return print_result(options.json ? node_checks_to_json(*checks).dump(2) + "\n"
                                   : describe_node_checks(*checks, wall_clock_unix_ns()));
}

}  // namespace

void declare_node_checks(CLI::App& node, Action& action) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* check = node.add_subcommand(
      "check",
      "Test idle nodes: GEMM, memory, copies, storage, and all-reduces between them; a node that "
      "fails is excluded");
  check->group("Commands");
  check
      ->add_option("node", options->nodes,
                   "Workers (default: all idle nodes that are not excluded)")
      ->type_name("NODE");
  check->add_flag("--deep", options->deep, "Required: the short check runs by itself")->required();
  check
      ->add_option("--seconds", options->seconds,
                   "Time of each measurement; minutes test a repaired node")
      ->type_name("SECONDS")
      ->check(daemon::number(kMeasureSecondsMin, kMeasureSecondsMax))
      ->capture_default_str();
  check
      ->add_option("--storage", options->storage,
                   "Absolute folder whose storage is tested (default: each worker's work folder)")
      ->type_name("FOLDER");
  check->add_flag("--no-links", options->no_links, "Leave out the all-reduces between nodes");
  check->add_flag("--no-wait", options->no_wait, "Do not wait for the results");
  check->add_flag("--show", options->show, "Show the newest sweep instead of beginning one");
  add_coordinator_option(*check, options->coordinator);
  add_json_option(*check, options->json);
  check->footer(
      "A job that needs a node ends its check at once. The exit code is 1 if a node failed, the\n"
      "sweep has findings, or a named node has not passed.\n"
      "Examples:\n"
      "  muster node check --deep\n"
      "  muster node check node7 node8 --deep --seconds 60 --storage /data\n"
      "  muster node checks node7       # earlier results\n"
      "  muster node admit node7        # after the repair of a node that failed");
  on_call(*check, action, options, run_sweep);

  const auto listed = std::make_shared<CheckOptions>();
  CLI::App* checks =
      node.add_subcommand("checks", "Show the results of a node's deep checks, newest first");
  checks->group("Commands");
  checks->add_option("node", listed->nodes, "The worker's name")
      ->required()
      ->expected(1)
      ->type_name("NODE");
  add_coordinator_option(*checks, listed->coordinator);
  add_json_option(*checks, listed->json);
  checks->footer(
      "Examples:\n"
      "  muster node checks node7\n"
      "  muster node checks node7 --json | jq '.checks[0].measurements.gemm'");
  on_call(*checks, action, listed, show_history);
}

}  // namespace muster::cli

// muster slurm fleet: a long-running allocation whose nodes are workers of a coordinator elsewhere.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

#include "cli/slurm/slurm.h"
#include "cli/slurm/slurm_commands.h"
#include "cli/slurm/slurm_limit.h"
#include "cli/slurm/slurm_nodes.h"
#include "cli/slurm/slurm_setup.h"
#include "cli/terminal/terminal.h"
#include "common/job/limits.h"
#include "common/process/exit_code.h"
#include "common/time/time.h"
#include "daemon/help.h"
#include "daemon/process.h"

namespace muster::cli {
namespace {

struct FleetOptions {
  SlurmOptions slurm;
  CoordinatorTarget coordinator;
  std::string worker_token_file;
  std::optional<int32_t> slots;
  std::string log_folder = "muster-fleet";
  std::string metrics_cluster;
  int32_t patience_minutes = 30;
};

constexpr int kPollMs = 500;
// Poll interval; slurmctld serves the whole cluster.
constexpr auto kQueryPeriod = std::chrono::seconds(2);
constexpr int32_t kPatienceMinutesMax = 10'080;  // a week

void print_event(const std::string& text) { write_text(STDERR_FILENO, "muster: " + text + "\n"); }

// Returns the next signal; 0 when none came within the poll interval.
int next_signal(const SlurmSignals& signals) {
  pollfd fd{signals.fd(), POLLIN, 0};
  poll(&fd, 1, kPollMs);
  return signals.take();
}

// Measures how long the fleet and its coordinator have been separated.
class Separation {
 public:
  explicit Separation(const FleetOptions& options)
      : coordinator_(options.coordinator.address), patience_(options.patience_minutes) {}

  // Returns an error when the separation has lasted too long.
  absl::Status update(bool apart) {
    const Instant now = monotonic_now();
    if (!apart) {
      if (std::exchange(since_, std::nullopt))
        print_event("workers are connected to the coordinator again");
      return absl::OkStatus();
    }
    if (!since_) {
      since_ = now;
      print_event(absl::StrCat("no worker is connected to the coordinator ", coordinator_,
                               "; waiting for at most ", patience_.count(), " minutes"));
    }
    if (now - *since_ < patience_) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("no worker has been connected to the coordinator ",
                                               coordinator_, " for ", patience_.count(),
                                               " minutes; the allocation ends"));
  }

 private:
  const std::string coordinator_;
  // Time for an operator to notice a lost coordinator and start it again, perhaps on another
  // machine. Afterwards the unused nodes are released.
  const std::chrono::minutes patience_;
  std::optional<Instant> since_;
};

// Runs until Slurm reclaims the nodes or every worker has left. Returns the signal; 0: none.
absl::StatusOr<int> watch_fleet(const FleetOptions& options, const SlurmJob& slurm,
                                const SlurmSignals& signals, WorkerStep& step, SlurmNodes& nodes) {
  Separation separation(options);
  LimitWarning limit(slurm);
  Instant query_at{};
  while (true) {
    const int signo = next_signal(signals);
    const std::string early = signo == SIGUSR1 ? limit.on_signal() : "";
    if (!early.empty()) print_event(early);
    if (signo != 0 && early.empty()) return signo;
    if (limit.is_due(monotonic_now())) return SIGUSR1;
    for (const std::string& notice : nodes.take_events()) print_event(notice);
    if (nodes.launched() && !step.runs_alone()) {
      step.release_srun();
      if (step.runs_alone()) print_event("every worker is connected to the coordinator");
    }
    if (auto status = step.health(); !status.ok()) return status;
    const bool is_alone = nodes.launched() && nodes.staying() == 0;
    // A restarted coordinator has no workers registered although they run.
    if (is_alone && monotonic_now() >= query_at) {
      query_at = monotonic_now() + kQueryPeriod;
      if (workers_have_ended(slurm)) return 0;
    }
    if (auto status = separation.update(is_alone || !nodes.coordinator_answers()); !status.ok())
      return status;
  }
}

// Lets the workers save and leave. Slurm kills processes that remain at the time limit, and
// requeues nothing then.
void let_workers_leave(const FleetOptions& options, const SlurmJob& slurm,
                       const SlurmSignals& signals, const SlurmNodes& nodes,
                       const LeaveDecision& leave_decision, NextAllocation& next_allocation,
                       const Allocation& allocation, bool is_killed) {
  const Instant leave_by = monotonic_now() + std::chrono::seconds(options.slurm.leave_seconds);
  const auto queue = [&] {
    if (leave_decision.requeue) next_allocation.request(allocation);
  };
  if (is_killed) queue();
  end_worker_step(slurm, Duration());
  Instant query_at{};
  while (monotonic_now() < leave_by) {
    if (next_signal(signals) == SIGTERM) {
      const SlurmJobState state = query_slurm_job(slurm);
      if (is_being_ended(state) && decide_leave(slurm, state).requeue) queue();
    }
    if (nodes.launched() && nodes.coordinator_answers() && nodes.staying() == 0) break;
    if (monotonic_now() < query_at) continue;
    query_at = monotonic_now() + kQueryPeriod;
    if (workers_have_ended(slurm)) break;
  }
  queue();
  if (leave_decision.requeue)
    print_event(absl::StrCat("the allocation ", next_allocation.outcome()));
}

// Makes the paths absolute, because the workers run in other folders.
absl::StatusOr<daemon::ClientTrust> absolute(daemon::ClientTrust trust) {
  if (auto status = daemon::check_flags(trust); !status.ok()) return status;
  for (std::string* path : {&trust.tls_ca, &trust.tls_cert, &trust.tls_key, &trust.token_file})
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  return trust;
}

int fleet(const FleetOptions& given) {
  const Instant began = monotonic_now();
  FleetOptions options = given;
  std::error_code error;
  // Container mounts need absolute paths.
  options.log_folder = std::filesystem::absolute(given.log_folder, error).string();
  const auto signals = SlurmSignals::block();
  if (!signals.ok()) return fail(signals.status());
  const auto slurm = enter_slurm_job();
  if (!slurm.ok()) return fail(slurm.status());
  if (auto status = daemon::make_writable_directory(options.log_folder); !status.ok())
    return fail(status);
  daemon::ClientTrust of_workers = options.coordinator.trust;
  if (!options.worker_token_file.empty()) of_workers.token_file = options.worker_token_file;
  const auto trust = absolute(of_workers);
  if (!trust.ok()) return fail(trust.status());
  const auto scrapes = scrape_folder(*slurm, options.slurm, options.log_folder + "/prometheus");
  if (!scrapes.ok()) return fail(scrapes.status());
  auto plan = step_plan(*slurm, options.slurm, options.coordinator.address,
                        options.slots.value_or(slurm->ranks_per_node.value_or(1)),
                        {options.log_folder, *scrapes});
  if (!plan.ok()) return fail(plan.status());
  plan->trust = *trust;
  plan->scrape_folder = *scrapes;
  plan->scrape_owner = scrape_owner(*slurm);
  plan->cluster = options.metrics_cluster.empty() ? slurm_cluster(*slurm) : options.metrics_cluster;
  auto step = WorkerStep::start(*plan);
  if (!step.ok()) return fail(step.status());
  SlurmNodes nodes({.job = *slurm, .fewest = 0}, options.coordinator);
  const auto signo = watch_fleet(options, *slurm, *signals, **step, nodes);
  if (!signo.ok()) {
    // The jobs on the workers are presumably healthy: they save before they leave. Nothing is
    // requeued.
    NextAllocation none(*slurm, "", AllocationSource::kNone, kAllocationsDefault);
    let_workers_leave(options, *slurm, *signals, nodes, LeaveDecision{false, ""}, none, {}, false);
    return fail(signo.status());
  }
  const SlurmJobState state = query_slurm_job(*slurm);
  const auto leave_decision =
      *signo == SIGUSR1  ? std::optional(LeaveDecision{true, "SIGUSR1: its time limit is near"})
      : *signo == SIGINT ? std::optional(LeaveDecision{false, "interrupted"})
      : *signo == 0      ? decide_workers_leave(*slurm, state)
                         : std::optional(decide_leave(*slurm, state));
  if (!leave_decision) {
    return fail(
        absl::UnavailableError(absl::StrCat("every worker has ended, although Slurm neither ends "
                                            "nor preempts the job; their logs are in ",
                                            options.log_folder)));
  }
  print_event(absl::StrCat("the workers are leaving: ", leave_decision->reason));
  // A fleet reports no steps, and its jobs are not part of it: only --max-turns bounds its
  // allocations.
  const Allocation allocation{.lasted = monotonic_now() - began, .counts = false};
  NextAllocation next_allocation(
      *slurm, absl::StrCat(options.log_folder, "/slurm_turns-", slurm->id, ".json"),
      options.slurm.no_requeue ? AllocationSource::kNone : AllocationSource::kRequeue,
      options.slurm.allocations_max.value_or(kAllocationsDefault));
  let_workers_leave(options, *slurm, *signals, nodes, *leave_decision, next_allocation, allocation,
                    is_being_ended(state));
  return to_int(ExitCode::kPreempted);
}

}  // namespace

void declare_slurm_fleet(CLI::App& slurm, Action& action) {
  auto options = std::make_shared<FleetOptions>();
  CLI::App* command = slurm.add_subcommand(
      "fleet", "In an sbatch script: make the allocation's nodes workers of a coordinator");
  command->group("Commands");
  add_coordinator_option(*command, options->coordinator);
  command
      ->add_option("--worker-token-file", options->worker_token_file,
                   "The workers' token; --token-file is then the token of this command, which "
                   "excludes and admits nodes (admin)")
      ->envname("MUSTER_WORKER_TOKEN_FILE")
      ->type_name("FILE")
      ->group("Trust");
  command->add_flag("--trusted-network", options->slurm.trusted_network,
                    "With TLS: allow other machines to reach the rendezvous address and the pages");
  daemon::add_count(*command, "--patience-minutes", options->patience_minutes,
                    "How long workers wait for a lost coordinator before they save and leave", 1,
                    kPatienceMinutesMax)
      ->capture_default_str();
  daemon::add_count(
      *command, "--slots", options->slots,
      "Ranks that a node may run at once (default: sbatch's --ntasks-per-node, else its GPUs)", 1,
      kNodesMax);
  command->add_option("--log-folder", options->log_folder, "Folder for the workers' logs")
      ->type_name("FOLDER")
      ->capture_default_str();
  command
      ->add_option("--metrics-cluster", options->metrics_cluster,
                   "With --metrics-port: the label `cluster` of the workers' series, the same as "
                   "for their coordinator (default: Slurm's ClusterName)")
      ->type_name("NAME");
  add_slurm_options(*command, options->slurm);
  command->footer(
      "Example, with muster-coordinator on the login node (docs/slurm.md):\n"
      "  MUSTER_COORDINATOR=login1:7070 sbatch -N 16 -t 7-0 slurm/fleet.sub\n"
      "  muster submit --coordinator login1:7070 …");
  on_call(*command, action, options, fleet);
}

}  // namespace muster::cli

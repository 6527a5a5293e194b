#include "cli/slurm/slurm_commands.h"

#include <unistd.h>

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "cli/run/run_command.h"
#include "cli/slurm/slurm_queue.h"
#include "cli/slurm/slurm_step.h"

namespace muster::cli {
namespace {

// Returns "12.0"; empty when there is none.
absl::StatusOr<std::string> worker_step_of(const SlurmJob& job) {
  const auto steps = output_of({"squeue", "-h", "-s", "-j", job.id, "-o", "%i %j"}, kSlurmDeadline);
  if (!steps.ok()) return steps.status();
  for (const absl::string_view line : absl::StrSplit(*steps, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() == 2 && words[1] == kStepName) return words[0];
  }
  return "";
}

SlurmAllocation allocation_of(const SlurmJob& job, const SlurmJobState& state, int64_t now) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  SlurmAllocation allocation{.reservation = job.reservation};
  if (!state.run_seconds) return allocation;
  allocation.start_unix_ns = now - *state.run_seconds * kSecondNs;
  if (state.limit_seconds)
    allocation.end_unix_ns = allocation.start_unix_ns + *state.limit_seconds * kSecondNs;
  return allocation;
}

}  // namespace

absl::StatusOr<std::vector<SlurmNode>> query_slurm_nodes(const std::string& names) {
  const auto text = output_of({"scontrol", "show", "node", "-o", names}, kSlurmDeadline);
  if (!text.ok()) return text.status();
  return parse_slurm_nodes(*text);
}

absl::StatusOr<MaintenanceByNode> query_slurm_maintenance(const SlurmJob& job) {
  // A user's format of times would not be read.
  const auto text = output_of(
      {"env", "-u", "SLURM_TIME_FORMAT", "scontrol", "show", "reservation", "-o"}, kSlurmDeadline);
  if (!text.ok()) return text.status();
  MaintenanceByNode planned;
  const std::vector<SlurmMaintenance> all = parse_slurm_maintenance(*text, absl::LocalTimeZone());
  if (all.empty()) return planned;
  const int64_t now = wall_clock_unix_ns();
  const SlurmAllocation allocation = allocation_of(job, query_slurm_job(job), now);
  for (const SlurmMaintenance& one : all) {
    if (!concerns_allocation(one, allocation, now)) continue;
    const auto nodes = output_of({"scontrol", "show", "hostnames", one.nodes}, kSlurmDeadline);
    if (!nodes.ok()) return nodes.status();
    for (const std::string& node :
         std::vector<std::string>(absl::StrSplit(*nodes, '\n', absl::SkipEmpty()))) {
      if (std::ranges::find(job.node_names, node) == job.node_names.end()) continue;
      const auto [known, added] =
          planned.emplace(node, NodeMaintenance{one.reservation, one.start_unix_ns});
      if (!added && one.start_unix_ns < known->second.start_unix_ns)
        known->second = {one.reservation, one.start_unix_ns};
    }
  }
  return planned;
}

SlurmJobState query_slurm_job(const SlurmJob& job) {
  const auto text = output_of({"scontrol", "show", "job", "-o", job.id}, kSlurmDeadline);
  return text.ok() ? parse_slurm_job(*text) : SlurmJobState{};
}

std::string query_slurm_script(const SlurmJob& job) {
  return output_of({"scontrol", "write", "batch_script", job.id, "-"}, kSlurmDeadline).value_or("");
}

absl::StatusOr<std::set<std::string>> query_started_jobs() {
  const auto text =
      output_of({"squeue", "-h", "-u", absl::StrCat(geteuid()), "-o", "%T %i %A"}, kSlurmDeadline);
  if (!text.ok()) return text.status();
  return started_jobs(*text);
}

// Repeats an aborted request: Slurm signals every process of a preempted job, so that scontrol may
// die before it has an answer.
absl::Status requeue_slurm_job(const SlurmJob& job) {
  constexpr int kTries = 3;
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    status = output_of({"scontrol", "requeue", job.id}, kSlurmDeadline).status();
    if (status.ok()) return status;
    if (query_slurm_job(job).restarts > job.restarts) return absl::OkStatus();
    if (!absl::IsAborted(status)) return status;
  }
  return status;
}

absl::Status cancel_waiting_tasks(const SlurmJob& job) {
  if (job.array.empty()) return absl::OkStatus();
  return output_of({"scancel", "--state=PENDING", job.array}, kSlurmDeadline).status();
}

bool workers_have_ended(const SlurmJob& job) {
  const auto step = worker_step_of(job);
  return step.ok() && step->empty();
}

void end_worker_step(const SlurmJob& job, Duration wait) {
  const auto step = worker_step_of(job);
  if (!step.ok() || step->empty()) return;
  (void)run_command({"scancel", "--signal=TERM", *step}, kSlurmDeadline);
  constexpr useconds_t kPollUs = 500'000;
  const Instant until = monotonic_now() + wait;
  while (monotonic_now() < until && !workers_have_ended(job)) usleep(kPollUs);
}

}  // namespace muster::cli

// Runs Slurm's own commands about the job in which this process runs. Thread-safe; each call blocks
// for at most kSlurmDeadline.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/slurm/slurm_job.h"
#include "cli/slurm/slurm_maintenance.h"
#include "common/time/time.h"

namespace muster::cli {

// Time limit of a command: a busy slurmctld (Slurm's controller) answers late, and a stopped one
// does not answer.
constexpr Duration kSlurmDeadline = std::chrono::seconds(20);

// Returns the nodes `names`, in Slurm's form "node1,node2", from `scontrol show node`.
absl::StatusOr<std::vector<SlurmNode>> query_slurm_nodes(const std::string& names);

// Returns the maintenance for which nodes of the job must be drained now (concerns_allocation()).
absl::StatusOr<MaintenanceByNode> query_slurm_maintenance(const SlurmJob& job);

// Returns the state of the job from `scontrol show job`. If Slurm does not answer, all fields are
// unknown.
SlurmJobState query_slurm_job(const SlurmJob& job);
// Returns the batch script as sbatch received it; "" if Slurm does not answer.
std::string query_slurm_script(const SlurmJob& job);
// Returns this user's jobs that have nodes (slurm_queue.h).
absl::StatusOr<std::set<std::string>> query_started_jobs();
// Requeues the job. This also works for a job that Slurm is ending: the job then starts again when
// its nodes are free.
absl::Status requeue_slurm_job(const SlurmJob& job);

// Cancels the pending tasks of the job's array. Does nothing if the job is not an array task.
absl::Status cancel_waiting_tasks(const SlurmJob& job);

// Returns whether the workers' job step runs on no node any more, as far as nodes answer; false if
// Slurm does not answer.
bool workers_have_ended(const SlurmJob& job);
// Sends SIGTERM to the workers' job step, and waits for its end for at most `wait`.
void end_worker_step(const SlurmJob& job, Duration wait);

}  // namespace muster::cli

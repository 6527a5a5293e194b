// Calls to Slurm's own commands about the job that this process runs in. Thread-safe; each call
// blocks for at most kSlurmDeadline.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/slurm/slurm_job.h"
#include "common/time.h"

namespace muster::cli {

// A busy slurmctld answers late; one that is down does not answer.
constexpr Duration kSlurmDeadline = std::chrono::seconds(20);

// Runs scontrol show node. `names` in Slurm's form: "node1,node2".
absl::StatusOr<std::vector<SlurmNode>> query_slurm_nodes(const std::string& names);

// Runs scontrol show job. All fields are unknown if Slurm does not answer.
SlurmJobState query_slurm_job(const SlurmJob& job);
// Returns the batch script as sbatch received it; empty if Slurm does not answer.
std::string query_slurm_script(const SlurmJob& job);
// Returns this user's jobs that have nodes (slurm_queue.h).
absl::StatusOr<std::set<std::string>> query_started_jobs();
// Works also for a job that Slurm is ending, which then starts again when its nodes are free.
absl::Status requeue_slurm_job(const SlurmJob& job);

// Cancels the pending tasks of the job's array. Does nothing for a job that is not an array task.
absl::Status cancel_waiting_tasks(const SlurmJob& job);

// Returns true when the workers' step runs on no node that answers; false also if Slurm does not
// answer.
bool workers_have_ended(const SlurmJob& job);
// Asks the workers' step to leave, and waits for its end for at most `wait`.
void end_worker_step(const SlurmJob& job, Duration wait);

}  // namespace muster::cli

// What Slurm's own commands are asked and told about the job that this process is in. Any thread; each call blocks, at most as long as
// kSlurmDeadline says.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/slurm/slurm_job.h"
#include "common/time.h"

namespace muster::cli {

// A slurmctld that is busy answers late; one that is away does not answer.
constexpr Duration kSlurmDeadline = std::chrono::seconds(20);

// scontrol show node; `names` as Slurm writes them: "node1,node2".
absl::StatusOr<std::vector<SlurmNode>> ask_slurm_nodes(const std::string& names);

// scontrol show job; nothing is known where Slurm does not answer.
SlurmJobState ask_slurm_job(const SlurmJob& job);
// Its batch script as sbatch was given it; empty where Slurm does not answer.
std::string ask_slurm_script(const SlurmJob& job);
// This user's jobs that are on nodes (slurm_queue.h).
absl::StatusOr<std::set<std::string>> ask_started_jobs();
// Of a job that Slurm ends already, too, which then has another turn when its nodes are free.
absl::Status requeue_slurm_job(const SlurmJob& job);

// Cancels those tasks of the job's array that wait. Nothing for a job that is no task.
absl::Status cancel_waiting_tasks(const SlurmJob& job);

// The workers' step is over: none of them is left on any node that answers. False where Slurm does not answer.
bool workers_have_ended(const SlurmJob& job);
// Asks the workers' step to leave, and waits for its end at most so long.
void end_worker_step(const SlurmJob& job, Duration wait);

}  // namespace muster::cli

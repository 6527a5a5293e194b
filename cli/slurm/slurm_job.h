// The Slurm job in which this process runs, from its environment and scontrol's output. All
// functions are pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

using Variables = std::map<std::string, std::string>;

// A Slurm job, or one task of a job array.
struct SlurmJob {
  // Job number in scontrol's form: "12", or "12_3" for an array task, because "12" would name all
  // tasks.
  std::string id{};
  std::string array{};  // the number of the whole array; empty: not an array task
  int32_t array_tasks = 1;
  std::string name{};
  std::string cluster{};                  // Slurm's ClusterName
  std::string node{};                     // the node of this process
  std::string nodes{};                    // all nodes: "node[1-4]"
  std::vector<std::string> node_names{};  // set by enter_slurm_job() only, which calls Slurm
  std::string reservation{};  // in which the job runs, possibly several names; empty: none
  int32_t node_count = 0;
  int32_t restarts = 0;                     // number of requeues
  std::optional<int32_t> ranks_per_node{};  // unset: Slurm reports neither tasks nor GPUs
};

// Returns the job of a process with this environment. Ranks per node are Slurm's tasks per node if
// set, else the GPUs per node if set. Returns FailedPrecondition outside of an allocation.
absl::StatusOr<SlurmJob> slurm_job(const Variables& environment);

// Returns the run's name for a user who has given none, from the Slurm job's name and number. It
// stays the same after a requeue. Characters that are unusual in folder names become '-'.
std::string run_name_of(const SlurmJob& job);

// Returns Slurm's ClusterName; "slurm" if Slurm has none.
std::string slurm_cluster(const SlurmJob& job);
// Returns a cluster label for the metrics of this job that differs from all other jobs':
// "slurm-12". It stays the same after a requeue, and is the same for all tasks of a chain.
std::string scrape_cluster(const SlurmJob& job, bool is_chain);

// Returns the switches above a node in the form of the worker's --switches: "s0.s1" for
// SLURM_TOPOLOGY_ADDR "s0.s1.node7".
std::string switches_of(const Variables& environment);
// Returns the block of a node in the topology of Slurm's plugin topology/block, whose blocks are
// NVLink domains: "b1" for SLURM_TOPOLOGY_ADDR "b1.node7"; empty for other topologies.
std::string domain_of(const Variables& environment);

// One node in the output of `scontrol show node -o`.
struct SlurmNode {
  std::string name;
  std::string address;
  std::string state;   // "IDLE+DRAIN"
  std::string reason;  // the reason given by the user who drained the node

  // Returns the reason why ranks should not run on the node; "" if they may.
  std::string trouble() const;
};
std::vector<SlurmNode> parse_slurm_nodes(std::string_view text);

// The state of a job in the output of `scontrol show job -o`.
struct SlurmJobState {
  std::string state{};  // RUNNING, COMPLETING, …
  std::optional<int64_t> run_seconds{};
  std::optional<int64_t> limit_seconds{};  // nullopt: UNLIMITED
  std::string id{};                        // plain job number, also for an array task
  std::string reason{};                    // "TimeLimit"
  bool is_preempted = false;               // Slurm has given the job's nodes to another job
  bool runs_one_task_at_a_time = false;    // an array that runs one task at a time ("%1")
  int32_t restarts = -1;                   // number of requeues; -1: not stated
};
SlurmJobState parse_slurm_job(std::string_view text);
// Returns the value of the field `name` in a line such as "NodeName=n1 State=IDLE+DRAIN
// ThreadsPerCore=1"; a value ends at a blank.
std::string slurm_field(std::string_view line, std::string_view name);

// Returns InvalidArgument if the job is an array whose tasks may run at the same time, because the
// tasks of a chain must follow each other.
absl::Status check_chain(const SlurmJob& job, const SlurmJobState& state);

// The decision whether a job that received a request to leave is requeued.
struct LeaveDecision {
  bool requeue = false;
  std::string reason;
  bool is_queued = false;  // another process has requeued the job already
};
// Returns the decision for a job whose state was `state` at the request to leave. If Slurm ends the
// job, its state is COMPLETING, for one of three reasons: the time limit, after which another
// allocation should continue; scancel, after which none should follow; or a requeue by another
// process (scontrol requeue).
LeaveDecision decide_leave(const SlurmJob& job, const SlurmJobState& state);
// Returns the decision for a job whose workers have all ended without a request from this process.
// nullopt: neither Slurm nor the time limit is the reason, so this is a fault and not the end of an
// allocation.
std::optional<LeaveDecision> decide_workers_leave(const SlurmJob& job, const SlurmJobState& state);
// Returns whether Slurm has begun to end the job: Slurm kills processes that remain after its
// KillWait.
bool is_being_ended(const SlurmJobState& state);

}  // namespace muster::cli

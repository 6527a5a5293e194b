// The Slurm job that this process runs in, from its environment and from scontrol. Pure: texts in,
// decisions out.
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

struct SlurmJob {
  // In scontrol's form: "12", or "12_3" for an array task, because "12" names all tasks.
  std::string id{};
  std::string array{};  // the number of the whole array; empty: not an array task
  int32_t array_tasks = 1;
  std::string name{};
  std::string cluster{};                  // Slurm's ClusterName
  std::string node{};                     // the node of this process
  std::string nodes{};                    // all nodes: "node[1-4]"
  std::vector<std::string> node_names{};  // filled in by enter_slurm_job(), which calls Slurm
  int32_t node_count = 0;
  int32_t restarts = 0;                     // how often it was requeued
  std::optional<int32_t> ranks_per_node{};  // unset: Slurm reports neither tasks nor GPUs
};

// FailedPrecondition outside of an allocation. The ranks per node are Slurm's tasks, else its GPUs.
absl::StatusOr<SlurmJob> slurm_job(const Variables& environment);

// Returns the name of a run without a name; it is the same after each requeue. Characters that do
// not belong in a folder name become '-'.
std::string run_name_of(const SlurmJob& job);

// Returns Slurm's ClusterName; "slurm" if it has none.
std::string slurm_cluster(const SlurmJob& job);
// Returns a name that separates the metrics of this job from other jobs' on any cluster:
// "slurm-12". It is the same after each requeue, and for all tasks of a chain.
std::string scrape_cluster(const SlurmJob& job, bool is_chain);

// Returns "s0.s1" for SLURM_TOPOLOGY_ADDR "s0.s1.node7": the switches above a node, in the worker's
// form.
std::string switches_of(const Variables& environment);

// One node of `scontrol show node -o`.
struct SlurmNode {
  std::string name;
  std::string address;
  std::string state;   // "IDLE+DRAIN"
  std::string reason;  // given by the user who drained it

  // Returns why ranks should not run there; empty if they may.
  std::string trouble() const;
};
std::vector<SlurmNode> parse_slurm_nodes(std::string_view text);

// The state in `scontrol show job -o`.
struct SlurmJobState {
  std::string state{};  // RUNNING, COMPLETING, …
  std::optional<int64_t> run_seconds{};
  std::optional<int64_t> limit_seconds{};  // nullopt: UNLIMITED
  std::string id{};                        // a plain number, also for an array task
  std::string reason{};                    // "TimeLimit"
  bool is_preempted = false;               // its nodes were given to another job
  bool runs_one_task_at_a_time = false;    // array with one running task at a time ("%1")
  int32_t restarts = -1;                   // how often it was requeued; -1: not stated
};
SlurmJobState parse_slurm_job(std::string_view text);
// Returns the value of a field, such as "State" of "NodeName=n1 State=IDLE+DRAIN ThreadsPerCore=1";
// it ends at a blank.
std::string slurm_field(std::string_view line, std::string_view name);

// InvalidArgument for an array whose tasks continue one run and may run at the same time.
absl::Status check_chain(const SlurmJob& job, const SlurmJobState& state);

// The decision whether a job that received a request to leave is requeued.
struct LeaveDecision {
  bool requeue = false;
  std::string reason;
  bool is_queued = false;  // requeued already by another process
};
// `state` dates from the request to leave. A job that Slurm ends is COMPLETING by then, for one of
// three reasons: its time limit, after which another allocation continues; a scancel, after which
// none should follow; or a requeue by another process (scontrol requeue).
LeaveDecision decide_leave(const SlurmJob& job, const SlurmJobState& state);
// The same for a job whose workers all ended without a request from this process. nullopt if
// neither Slurm nor the time limit is the reason: that is a fault, not the end of an allocation.
std::optional<LeaveDecision> decide_workers_leave(const SlurmJob& job, const SlurmJobState& state);
// Returns whether Slurm has begun to end the job: processes left after KillWait are killed.
bool is_being_ended(const SlurmJobState& state);

}  // namespace muster::cli

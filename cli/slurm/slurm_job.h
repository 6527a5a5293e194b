// The Slurm job that this process is part of, by its environment, and what scontrol says of it. Pure: texts in, decisions out.
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
  std::string
      id{};  // as scontrol takes it: "12", and "12_3" of an array's task, because "12" is all of them
  std::string array{};  // the number of all its tasks; empty: it is none of an array's
  int32_t array_tasks = 1;
  std::string name{};
  std::string cluster{};                  // Slurm's name of itself
  std::string node{};                     // this process's
  std::string nodes{};                    // all of them: "node[1-4]"
  std::vector<std::string> node_names{};  // enter_slurm_job() asks Slurm
  int32_t node_count = 0;
  int32_t restarts = 0;  // how often it was requeued
  int32_t ranks_per_node = 1;
};

// FailedPrecondition outside of an allocation. Ranks on each node: Slurm's tasks, else its GPUs, else 1.
absl::StatusOr<SlurmJob> slurm_job(const Variables& environment);

// For a run without a name: the same after each requeue. What a folder's name should not have is '-'.
std::string run_name_of(const SlurmJob& job);

// Slurm's name of itself, "slurm" where it says none.
std::string slurm_cluster(const SlurmJob& job);
// What keeps its metrics apart from other jobs', on any cluster; the same after each requeue, and of all tasks of a chain: "slurm-12".
std::string scrape_cluster(const SlurmJob& job, bool is_chain);

// "s0.s1" of SLURM_TOPOLOGY_ADDR "s0.s1.node7": the switches above a node, as the worker takes them.
std::string switches_of(const Variables& environment);

// One node of `scontrol show node -o`.
struct SlurmNode {
  std::string name;
  std::string address;
  std::string state;   // "IDLE+DRAIN"
  std::string reason;  // of whoever drained it

  // Why ranks should not be there; empty: they may.
  std::string trouble() const;
};
std::vector<SlurmNode> parse_slurm_nodes(std::string_view text);

// Of `scontrol show job -o`.
struct SlurmJobState {
  std::string state{};  // RUNNING, COMPLETING, …
  std::optional<int64_t> run_seconds{};
  std::optional<int64_t> limit_seconds{};  // none: UNLIMITED
  std::string id{};                        // a number of its own, also of an array's task
  std::string reason{};                    // "TimeLimit"
  bool is_preempted = false;               // others have been given its nodes
  bool tasks_take_turns = false;           // of an array: one runs at a time ("%1")
  int32_t restarts = -1;                   // how often it was queued again; -1: not said
};
SlurmJobState parse_slurm_job(std::string_view text);
// "State" of "NodeName=n1 State=IDLE+DRAIN ThreadsPerCore=1"; the value ends at a blank.
std::string slurm_field(std::string_view line, std::string_view name);

// InvalidArgument for an array whose tasks are to be turns of one run, and may run at once.
absl::Status check_chain(const SlurmJob& job, const SlurmJobState& state);

// Whether a job that was told to leave is to be queued again.
struct Farewell {
  bool requeue = false;
  std::string reason;
  bool is_queued = false;  // again, by somebody else
};
// `state` is from when it was told. A job that Slurm ends is COMPLETING by then: by its time limit, which another turn goes on from, because
// somebody cancelled it, who wants no other turn, or because somebody has queued it again (scontrol requeue).
Farewell farewell_of(const SlurmJob& job, const SlurmJobState& state);
// Of a job whose workers have all ended although nobody here asked them to: nothing where neither Slurm nor the time limit is the reason,
// which is a fault and no turn.
std::optional<Farewell> farewell_of_workers(const SlurmJob& job, const SlurmJobState& state);
// Slurm has begun to end it: what is not gone within KillWait is killed.
bool is_being_ended(const SlurmJobState& state);

}  // namespace muster::cli

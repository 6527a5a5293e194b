// Explains why a submitted Slurm job waits, or why it can never start. All functions are pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster::cli {

// One partition in the output of `scontrol show partition -o`.
struct SlurmPartition {
  std::string name;
  bool is_default = false;
  int32_t nodes = 0;
};
std::vector<SlurmPartition> parse_slurm_partitions(std::string_view text);

// Returns the reason why none of the partitions `named` ("main,big"; empty: the default partition)
// can ever provide `nodes` nodes at once; "" if one can, or if this is unknown. sbatch would accept
// such a job, and the job would wait forever.
std::string too_many_nodes(const std::vector<SlurmPartition>& partitions, std::string_view named,
                           int32_t nodes);

// Returns the GPUs of each node of the partitions `named` (as above), from the output of
// `sinfo -h -o "%P|%D|%G"`: partition, number of nodes, and their generic resources, such as
// "gpu:h100:8(S:0-1),nic:2". A node in several of the partitions is there several times.
std::vector<int32_t> parse_slurm_gpus(std::string_view text, std::string_view named);

// Returns the GPU types in the same output: "h100" in "gpu:h100:8". GPUs without a type have the
// type "".
std::vector<std::string> parse_slurm_gpu_types(std::string_view text, std::string_view named);

// Returns the numbers of all jobs that have nodes, from the output of `squeue -h -o "%T %i %A"`:
// all jobs that are not pending.
std::set<std::string> started_jobs(std::string_view text);

// Returns a sentence that explains squeue's `reason`; "" for a job that does not wait, or whose
// reason is not known yet ("None").
std::string waiting_text(std::string_view reason);

}  // namespace muster::cli

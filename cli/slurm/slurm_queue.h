// What Slurm says of a job that is handed in: whether it can ever start, and why it waits. Pure: texts in, sentences out.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster::cli {

// One partition of `scontrol show partition -o`.
struct SlurmPartition {
  std::string name;
  bool is_default = false;
  int32_t nodes = 0;
};
std::vector<SlurmPartition> parse_slurm_partitions(std::string_view text);

// Why no partition that is named ("main,big"; empty: the default) can ever have so many nodes at once; empty where one can, or where
// nobody knows. sbatch takes such a job, which waits for ever.
std::string too_many_nodes(const std::vector<SlurmPartition>& partitions, std::string_view named,
                           int32_t nodes);

// Jobs that are on nodes, by all their numbers, of `squeue -h -o "%T %i %A"`: those that do not wait.
std::set<std::string> started_jobs(std::string_view text);

// A sentence about squeue's reason; empty for a job that does not wait, or of which nothing is known yet ("None").
std::string waiting_text(std::string_view reason);

}  // namespace muster::cli

// The script that `muster slurm submit` hands to sbatch. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

struct ScriptPlan {
  std::string job_name{};
  // sbatch's, each empty where it is not given.
  std::string account{};
  std::string partition{};
  std::string qos{};
  std::string time{};
  std::string dependency{};
  int32_t nodes = 1;  // spares among them
  int32_t gpus_per_node = 0;
  int32_t chain = 1;                // jobs that follow each other
  int32_t signal_seconds = 0;       // before the time limit; 0: none
  bool keeps_failed_nodes = false;  // the allocation outlives a node
  bool exclusive = true;
  std::string output_folder{};
  std::vector<std::string> more{};     // sbatch's options as they stand
  std::vector<std::string> command{};  // what is run
};

// A word as a shell takes it.
std::string shell_word(const std::string& word);

// InvalidArgument for what no line of a script can say.
absl::StatusOr<std::string> slurm_script(const ScriptPlan& plan);

}  // namespace muster::cli

// The script that `muster slurm submit` hands to sbatch. Pure.
#pragma once

#include <cstdint>
#include <optional>
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
  int32_t tasks_per_node =
      0;  // of nodes that are shared: processors for each rank; 0: sbatch's own
  std::string output_folder{};
  std::vector<std::string> more{};     // sbatch's options as they stand
  std::vector<std::string> command{};  // what is run
};

// Seconds of a time limit as sbatch takes it ("30", "30:00", "4:00:00", "1-0", "1-2:30", "1-2:30:00"); none of another text, which sbatch
// judges, and of "UNLIMITED".
std::optional<int64_t> limit_seconds(const std::string& time);
// How long before the limit SIGUSR1 comes: as asked for, but at most a quarter of the limit, so that a turn has most of its time.
int32_t signal_lead(int32_t wanted_seconds, const std::string& time);

// A word as a shell takes it.
std::string shell_word(const std::string& word);

// The words of a line of options, as sbatch takes its own apart. InvalidArgument for a quote that is not closed.
absl::StatusOr<std::vector<std::string>> sbatch_words(const std::string& line);

// sbatch's command line for the script at `path`. Its variables (SBATCH_PARTITION, …) beat what a script says, but not what stands here;
// of what is said twice the last counts, which is the plan's `more`.
absl::StatusOr<std::vector<std::string>> sbatch_command(const ScriptPlan& plan,
                                                        const std::string& path);

// InvalidArgument for what no line of a script can say.
absl::StatusOr<std::string> slurm_script(const ScriptPlan& plan);

}  // namespace muster::cli

// Creates the script that `muster slurm submit` passes to sbatch. All functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// The contents of a script.
struct ScriptPlan {
  std::string job_name{};
  // The fields below are options of sbatch; empty: not given.
  std::string account{};
  std::string partition{};
  std::string qos{};
  std::string time{};
  std::string dependency{};
  int32_t nodes = 1;  // including spares
  int32_t gpus_per_node = 0;
  int32_t chain = 1;  // number of allocations that follow each other
  // time before the limit at which Slurm sends SIGUSR1; 0: no signal
  int32_t signal_seconds = 0;
  // true: pass --no-kill, so that the allocation continues on its other nodes when a node fails
  bool keeps_failed_nodes = false;
  bool exclusive = true;
  // for shared nodes: number of tasks per node; 0: sbatch's default
  int32_t tasks_per_node = 0;
  std::string output_folder{};
  std::vector<std::string> more{};     // further options of sbatch, unchanged
  std::vector<std::string> command{};  // the command to run
};

// Returns the seconds of a time limit in sbatch's form ("30", "30:00", "4:00:00", "1-0", "1-2:30",
// "1-2:30:00"); nullopt for "UNLIMITED" and for other texts, which sbatch validates.
std::optional<int64_t> limit_seconds(const std::string& time);
// Returns the seconds before the time limit at which Slurm should send SIGUSR1: the requested
// number, but at most a quarter of the limit, so that an allocation trains for most of its time.
int32_t signal_lead(int32_t requested_seconds, const std::string& time);

// Quotes a word for a shell.
std::string shell_word(const std::string& word);

// Splits a line of options into words, as sbatch does. Returns InvalidArgument for an unclosed
// quote.
absl::StatusOr<std::vector<std::string>> split_sbatch_line(const std::string& line);

// Returns sbatch's command line for the script at `path`. Environment variables (SBATCH_PARTITION,
// …) override a script, but not the command line; of repeated options the last one wins, so the
// plan's `more` comes last.
absl::StatusOr<std::vector<std::string>> sbatch_command(const ScriptPlan& plan,
                                                        const std::string& path);

// Returns the script's text. Returns InvalidArgument for text that a script line cannot contain.
absl::StatusOr<std::string> slurm_script(const ScriptPlan& plan);

}  // namespace muster::cli

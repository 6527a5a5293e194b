// The options of `muster submit` that determine when and where a job may start: dependencies, the
// time limit, arrays, and conditions for nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/jobs/job_arguments.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// The tasks of --array: "0-9%3", "1,3,7", "0-15:4".
struct ArrayTasks {
  std::vector<int32_t> indices;  // ascending, without duplicates
  int32_t running_max = 0;       // 0: all

  friend bool operator==(const ArrayTasks&, const ArrayTasks&) = default;
};

// The texts in names and settings that are replaced by the task's number.
inline constexpr char kArrayIndex[] = "{array_index}";

// The functions below return InvalidArgument with the option, the text and what would be right.

// Returns the seconds of the text of `option`, such as --time-limit: "2h", "1h30m", or Slurm's
// forms MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM and D-HH:MM:SS.
absl::StatusOr<int64_t> parse_time(const std::string& option, const std::string& text);
absl::StatusOr<ArrayTasks> parse_array(const std::string& text);
// Adds the jobs of a list, "7,8", as dependencies.
absl::Status add_dependencies(const std::string& option, const std::string& jobs,
                              v1::Dependency::Kind kind, v1::JobSpec& spec);
// Adds the dependencies of a text in Slurm's form, "afterok:7:8,afterany:9".
absl::Status add_slurm_dependencies(const std::string& text, v1::JobSpec& spec);

class QueueOptions {
 public:
  void declare(CLI::App& command);

  // Sets the fields of the job.
  absl::Status apply(v1::JobSpec& spec) const;
  // Returns the tasks of --array; nullopt if it is not given.
  absl::StatusOr<std::optional<ArrayTasks>> array() const;

 private:
  std::string after_ok_, after_any_, after_not_ok_, dependency_, time_limit_, notice_, array_;
  std::vector<std::string> selector_, tolerations_;
};

// Returns the arguments of one task: with its number in place of {array_index}, or at the end of
// the run's name. `array`: the array's id, which is part of the name of a run without one. Error:
// InvalidArgument if all tasks would write to one --output.
absl::StatusOr<JobArguments> arguments_of_task(JobArguments arguments, const std::string& array,
                                               int32_t index);

}  // namespace muster::cli

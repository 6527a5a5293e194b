// Runs `muster-trainer check`, which validates a job's config, data and checkpoints before any of
// its processes starts.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/jobs/job_arguments.h"
#include "cli/terminal/child_process.h"

namespace muster::cli {

// A check that runs in the background.
class Preflight {
 public:
  // kHere: the ranks will run on this machine, so the check includes its memory.
  enum class Ranks { kHere, kElsewhere };
  static constexpr std::chrono::milliseconds kOutputPeriod{200};
  // Starts the check. Its output is written to the file `report_path`. `no_plan`: the memory is not
  // checked.
  static absl::StatusOr<Preflight> start(const std::string& config_path,
                                         const std::string& report_path, Ranks ranks,
                                         bool no_plan = false);

  const ChildProcess& process() const { return *process_; }
  // Shows the new notes and warnings of the check, such as that a store does not answer. To be
  // called about every kOutputPeriod while it runs; result() shows the rest.
  void show_output();
  // Waits for the end of the check. Returns InvalidArgument, with the check's output, for bad
  // input.
  absl::Status result();

 private:
  Preflight(std::unique_ptr<ChildProcess> process, std::string report_path)
      : process_(std::move(process)), report_path_(std::move(report_path)) {}

  std::unique_ptr<ChildProcess> process_;
  std::string report_path_;
  size_t shown_bytes_ = 0;
};

// Runs the check (kElsewhere) of the job's config for each number of nodes on which the job may
// run.
absl::Status check_all_sizes(const v1::JobSpec& spec);

// Returns the job to submit. If `check` is true, first runs the check (kElsewhere) for each number
// of nodes on which the job may run. Does not check the files of a user's program, which may exist
// on other machines only.
absl::StatusOr<v1::JobSpec> checked_spec(const JobArguments& arguments, bool check);

}  // namespace muster::cli

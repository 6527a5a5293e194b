// `muster-trainer check`: validates everything about a job that its files determine, before any
// process of it starts.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/jobs/job_arguments.h"
#include "cli/terminal/child_process.h"

namespace muster::cli {

class Preflight {
 public:
  // States whether the ranks will run on this machine; if so, its memory is checked, too.
  enum class Ranks { kHere, kElsewhere };
  // Starts the check in the background. `report_path` receives its output.
  static absl::StatusOr<Preflight> start(const std::string& config_path,
                                         const std::string& report_path, Ranks ranks);

  const ChildProcess& process() const { return *process_; }
  // Waits for the end. InvalidArgument with the check's output for bad input.
  absl::Status result();

 private:
  Preflight(std::unique_ptr<ChildProcess> process, std::string report_path)
      : process_(std::move(process)), report_path_(std::move(report_path)) {}

  std::unique_ptr<ChildProcess> process_;
  std::string report_path_;
};

// Returns the job to submit. With `check`, its config has passed the whole check at each of its
// sizes, for ranks on other machines. Files of a user's program are not checked: they may exist on
// other machines only.
absl::StatusOr<v1::JobSpec> checked_spec(const JobArguments& arguments, bool check);

}  // namespace muster::cli

// `muster-trainer check`: everything about a job that its files can say, before anything of it is started.
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
  // Whether the ranks will run on this machine, whose memory is then checked, too.
  enum class Ranks { kHere, kElsewhere };
  // Runs in the background; `report_path` keeps what it says.
  static absl::StatusOr<Preflight> start(const std::string& config_path,
                                         const std::string& report_path, Ranks ranks);

  const ChildProcess& process() const { return *process_; }
  // Waits for the end. InvalidArgument with the check's own words for bad input.
  absl::Status result();

 private:
  Preflight(std::unique_ptr<ChildProcess> process, std::string report_path)
      : process_(std::move(process)), report_path_(std::move(report_path)) {}

  std::unique_ptr<ChildProcess> process_;
  std::string report_path_;
};

// The job that is to be submitted. With `check` its config has passed the whole check, at each of its sizes, for ranks that may run elsewhere; a
// program's files are its own business, and may be on other machines alone.
absl::StatusOr<v1::JobSpec> checked_spec(const JobArguments& arguments, bool check);

}  // namespace muster::cli

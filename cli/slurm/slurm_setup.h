// Common parts of `muster slurm run` and `muster slurm fleet`: their options, and the start of
// workers in an allocation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/scrape_target.h"
#include "cli/slurm/slurm_allocations.h"
#include "cli/slurm/slurm_job.h"
#include "cli/slurm/slurm_step.h"
#include "common/time/time.h"

namespace muster::cli {

// The values of the common options.
struct SlurmOptions {
  std::string container;
  std::vector<std::string> mounts;
  std::string address;  // address of this node for the other nodes
  std::string profile;
  bool insecure = false;
  bool trusted_network = false;
  bool no_requeue = false;
  std::optional<int32_t> metrics_port;
  std::string metrics_folder;
  int32_t leave_seconds = 600;
  // maximum number of allocations; unset: kAllocationsMax for a chain (its tasks are the limit),
  // otherwise kAllocationsDefault
  std::optional<int32_t> allocations_max;
};

// Declares the options on `command`.
void add_slurm_options(CLI::App& command, SlurmOptions& options);

// Returns the job in which this process runs. Removes the environment variables that sbatch has set
// for the batch script's own tasks, because srun would apply them to the workers.
absl::StatusOr<SlurmJob> enter_slurm_job();

// Returns the address to listen on: loopback for a single node without --metrics-port, else
// --address, or the address of this node in Slurm. Returns FailedPrecondition if other machines can
// reach the address and --insecure is missing.
absl::StatusOr<std::string> listen_host(const SlurmJob& job, const SlurmOptions& options);

// Makes the same check before there is an allocation, for a job of `nodes` nodes.
absl::Status check_listener(int32_t nodes, const SlurmOptions& options);

// Returns the plan of the workers' job step. `folders`: folders that must be visible in the
// container; the first folder is for logs, and empty names are ignored. Prints a warning if
// `options.container` cannot be used.
absl::StatusOr<StepPlan> step_plan(const SlurmJob& job, const SlurmOptions& options,
                                   const std::string& coordinator, int32_t slots,
                                   const std::vector<std::string>& folders);

// Returns the owner that names this job's files for Prometheus.
ScrapeOwner scrape_owner(const SlurmJob& job);
// Returns the folder for these files: --metrics-folder, or `folder` if that is not given; ""
// without --metrics-port. Creates the folder, and removes files of finished jobs from it.
absl::StatusOr<std::string> scrape_folder(const SlurmJob& job, const SlurmOptions& options,
                                          const std::string& folder);

// Makes Slurm's signals and Ctrl-C readable from a file descriptor.
class SlurmSignals {
 public:
  // Blocks the signals. Requires that no other thread exists yet.
  static absl::StatusOr<SlurmSignals> block();
  int fd() const { return fd_; }
  // Returns the next pending signal; 0 if none is pending.
  int take() const;

 private:
  explicit SlurmSignals(int fd) : fd_(fd) {}
  int fd_;  // open for the life of the process
};

}  // namespace muster::cli

// Common parts of `muster slurm run` and `muster slurm fleet`: their options, and how an allocation
// gets its workers.
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
#include "common/time.h"

namespace muster::cli {

struct SlurmOptions {
  std::string container;
  std::vector<std::string> mounts;
  std::string address;  // the address of this node for the other nodes
  std::string profile;
  bool insecure = false;
  bool trusted_network = false;
  bool no_requeue = false;
  std::optional<int32_t> metrics_port;
  std::string metrics_folder;
  int32_t leave_seconds = 600;
  // unset: kAllocationsMax for a chain (its tasks are the limit), otherwise kAllocationsDefault
  std::optional<int32_t> allocations_max;
};

void add_slurm_options(CLI::App& command, SlurmOptions& options);

// Returns the job that this process runs in. Removes the variables that sbatch set for the batch
// script's own tasks, because srun would apply them to the workers.
absl::StatusOr<SlurmJob> enter_slurm_job();

// Returns the address to listen on: loopback for a single node without --metrics-port, else
// --address, or the address of this node in Slurm. FailedPrecondition if other machines
// can reach it and --insecure is missing.
absl::StatusOr<std::string> listen_host(const SlurmJob& job, const SlurmOptions& options);

// Makes the same check before there is an allocation, for a job of `nodes`.
absl::Status check_listener(int32_t nodes, const SlurmOptions& options);

// `folders` must be visible in a container; the first one is for logs, and empty ones are ignored.
// Warns if `options.container` cannot be used.
absl::StatusOr<StepPlan> step_plan(const SlurmJob& job, const SlurmOptions& options,
                                   const std::string& coordinator, int32_t slots,
                                   const std::vector<std::string>& folders);

// Returns the names of this job's files for Prometheus.
ScrapeOwner scrape_owner(const SlurmJob& job);
// Returns the folder for them, created and cleared of files of finished jobs; `folder` if
// --metrics-folder names none. Empty without --metrics-port.
absl::StatusOr<std::string> scrape_folder(const SlurmJob& job, const SlurmOptions& options,
                                          const std::string& folder);

// Slurm's signals, and Ctrl-C, as a file descriptor.
class SlurmSignals {
 public:
  // Blocks the signals. Call it before any thread exists.
  static absl::StatusOr<SlurmSignals> block();
  int fd() const { return fd_; }
  // Returns the next pending signal; 0: none.
  int take() const;

 private:
  explicit SlurmSignals(int fd) : fd_(fd) {}
  int fd_;  // open for the life of the process
};

}  // namespace muster::cli

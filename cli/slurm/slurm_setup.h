// What `muster slurm run` and `muster slurm fleet` have in common: their options, and how an allocation gets its workers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/scrape_target.h"
#include "cli/slurm/slurm_job.h"
#include "cli/slurm/slurm_step.h"
#include "cli/slurm/slurm_turns.h"
#include "common/time.h"

namespace muster::cli {

struct SlurmOptions {
  std::string container;
  std::vector<std::string> mounts;
  std::string address;  // of this node, for the others
  std::string profile;
  bool insecure = false;
  bool trusted_network = false;
  bool no_requeue = false;
  std::optional<int32_t> metrics_port;
  std::string metrics_folder;
  int32_t leave_seconds = 600;
  std::optional<int32_t> turns_max;  // none: kTurnsDefault, and of a chain all of its tasks
};

void add_slurm_options(CLI::App& command, SlurmOptions& options);

// The job that this process is in. Takes those variables away that sbatch set for the batch script's own tasks and srun would take for the
// workers'.
absl::StatusOr<SlurmJob> enter_slurm_job();

// Where the coordinator listens: on loopback for one node whose pages nobody else reads, else at the address by which Slurm knows this node. FailedPrecondition where
// that can be reached by other machines and nobody has said --insecure.
absl::StatusOr<std::string> listen_host(const SlurmJob& job, const SlurmOptions& options);

// The same judgement before there is an allocation, of a job of `nodes`.
absl::Status check_listener(int32_t nodes, const SlurmOptions& options);

// `folders` are those that a container has to see, the first one for logs; empty ones are none. Warns where there is no container for `options.container`.
absl::StatusOr<StepPlan> step_plan(const SlurmJob& job, const SlurmOptions& options,
                                   const std::string& coordinator, int32_t slots,
                                   const std::vector<std::string>& folders);

// What the files for Prometheus are called that are this job's.
ScrapeOwner scrape_owner(const SlurmJob& job);
// The folder for them, which is made, and rid of those of jobs that are over; `folder` where --metrics-folder names none. Empty without
// --metrics-port.
absl::StatusOr<std::string> scrape_folder(const SlurmJob& job, const SlurmOptions& options,
                                          const std::string& folder);

// Signals of Slurm's, and Ctrl-C, as a file descriptor.
class SlurmSignals {
 public:
  // Blocks them; before any thread exists.
  static absl::StatusOr<SlurmSignals> block();
  int fd() const { return fd_; }
  // The next one that came, 0 for none.
  int take() const;

 private:
  explicit SlurmSignals(int fd) : fd_(fd) {}
  int fd_;  // for as long as the process lives
};

}  // namespace muster::cli

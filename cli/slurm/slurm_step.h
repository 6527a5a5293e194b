// The job step that has a worker on each node of an allocation.
//
// srun starts it, and is killed when every worker has been heard of. It is in the way from then on: Slurm sends SIGTERM to every process
// of a job that it ends, and an srun that gets one kills its step at once, in the middle of a checkpoint. Without it the step goes on, and
// what ends it is the end of the job. InactiveLimit "has no effect upon batch jobs" (man slurm.conf).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/scrape_target.h"
#include "cli/terminal/child_process.h"
#include "daemon/client_trust.h"

namespace muster::cli {

struct StepPlan {
  int32_t nodes = 1;
  std::string program{};      // muster, as each node has it
  std::string coordinator{};  // host:port
  int32_t slots = 1;
  int32_t leave_seconds = 0;
  bool insecure = false;
  bool trusted_network = false;
  daemon::ClientTrust trust{};            // of a coordinator with TLS; every node has the files
  std::optional<int32_t> metrics_port{};  // of the workers' pages, on the nodes' addresses; 0: any
  std::string scrape_folder{};            // where workers say to Prometheus where those are
  ScrapeOwner scrape_owner{};             // as which job's
  std::string cluster{};                  // that label of theirs
  std::string log_folder{};               // every node writes there
  std::string profile{};      // of the first node's ranks, by Nsight Systems; empty: none
  int32_t gpus_per_node = 0;  // 0: Slurm knows of none
  // Of pyxis; none when `container` is empty.
  std::string container{};
  std::vector<std::string> mounts{};
  std::string working_directory{};
};

inline constexpr char kStepName[] = "muster-workers";

// What is started. `program` and all paths may have any character.
std::vector<std::string> srun_command(const StepPlan& plan);

// Whether this Slurm's srun knows pyxis' options; asks it.
bool has_pyxis();

class WorkerStep {
 public:
  // The calling thread must outlive the step's start.
  static absl::StatusOr<std::unique_ptr<WorkerStep>> start(const StepPlan& plan);

  // Why it has ended, in srun's own words; ok while it runs, or does without srun.
  absl::Status health();
  // Kills its helper and srun, in that order, which leaves the step alone. Nothing where the helper is not found.
  void let_srun_go();
  bool runs_alone() const { return srun_ == nullptr; }

 private:
  WorkerStep(std::unique_ptr<ChildProcess> srun, std::string log)
      : srun_(std::move(srun)), log_(std::move(log)) {}

  std::unique_ptr<ChildProcess> srun_;
  const std::string log_;
};

}  // namespace muster::cli

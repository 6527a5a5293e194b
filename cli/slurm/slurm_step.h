// The job step that runs a worker on each node of an allocation.
//
// srun starts the step. When every worker has registered, srun is killed, because it would do harm
// at the end: when Slurm ends a job, it sends SIGTERM to every process of the job, and srun then
// kills its step at once, in the middle of a checkpoint. Without srun, the step continues until the
// job ends. Slurm's InactiveLimit, which ends steps without srun, "has no effect upon batch jobs"
// (man slurm.conf).
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

// The description of a step.
struct StepPlan {
  int32_t nodes = 1;
  std::string program{};      // path of the program muster on each node
  std::string coordinator{};  // host:port
  int32_t slots = 1;
  int32_t leave_seconds = 0;
  bool insecure = false;
  bool trusted_network = false;
  // TLS files and token for the coordinator; all nodes have the files
  daemon::ClientTrust trust{};
  // port of the workers' HTTP pages on the nodes' addresses; 0: any free port
  std::optional<int32_t> metrics_port{};
  // folder for the files with these addresses, for Prometheus
  std::string scrape_folder{};
  ScrapeOwner scrape_owner{};  // owner in the names of these files
  std::string cluster{};       // cluster label of the series
  std::string log_folder{};    // folder for the logs of all nodes
  std::string profile{};       // Nsight Systems report of the first node's ranks; empty: none
  int32_t gpus_per_node = 0;   // 0: Slurm reports none
  // The fields below are options of pyxis, Slurm's plugin for containers; unused if `container` is
  // empty.
  std::string container{};
  std::vector<std::string> mounts{};
  std::string working_directory{};
};

inline constexpr char kStepName[] = "muster-workers";

// Returns the command line that starts the step. `program` and all paths may contain any character.
std::vector<std::string> srun_command(const StepPlan& plan);

// Runs srun to find out whether it supports pyxis' options. Blocks.
bool has_pyxis();

// A started step.
class WorkerStep {
 public:
  // Starts the step. Requires that the calling thread lives until release_srun().
  static absl::StatusOr<std::unique_ptr<WorkerStep>> start(const StepPlan& plan);

  // Returns OK while the step runs, with or without srun; otherwise an error with srun's message.
  absl::Status health();
  // Kills srun's helper process and then srun; the step continues. Does nothing if the helper is
  // not found.
  void release_srun();
  bool runs_alone() const { return srun_ == nullptr; }

 private:
  WorkerStep(std::unique_ptr<ChildProcess> srun, std::string log)
      : srun_(std::move(srun)), log_(std::move(log)) {}

  std::unique_ptr<ChildProcess> srun_;
  const std::string log_;
};

}  // namespace muster::cli

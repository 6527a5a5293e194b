// The job step that runs a worker on each node of an allocation.
//
// srun starts it, and is killed when every worker has registered. From then on it is harmful: Slurm
// sends SIGTERM to every process of a job that it ends, and an srun that receives it kills its step
// at once, in the middle of a checkpoint. Without srun the step continues until the job ends.
// InactiveLimit "has no effect upon batch jobs" (man slurm.conf).
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
  std::string program{};      // the path of muster on each node
  std::string coordinator{};  // host:port
  int32_t slots = 1;
  int32_t leave_seconds = 0;
  bool insecure = false;
  bool trusted_network = false;
  daemon::ClientTrust trust{};            // for a coordinator with TLS; every node has the files
  std::optional<int32_t> metrics_port{};  // of the workers' pages, on the nodes' addresses; 0: any
  std::string scrape_folder{};            // where workers publish those addresses for Prometheus
  ScrapeOwner scrape_owner{};             // the job in the names of these files
  std::string cluster{};                  // the value of their cluster label
  std::string log_folder{};               // every node writes its logs there
  std::string profile{};      // Nsight Systems report of the first node's ranks; empty: none
  int32_t gpus_per_node = 0;  // 0: Slurm reports none
  // For pyxis; unused when `container` is empty.
  std::string container{};
  std::vector<std::string> mounts{};
  std::string working_directory{};
};

inline constexpr char kStepName[] = "muster-workers";

// Returns the command to start. `program` and all paths may contain any character.
std::vector<std::string> srun_command(const StepPlan& plan);

// Runs srun to find out whether it supports pyxis' options.
bool has_pyxis();

class WorkerStep {
 public:
  // The calling thread must outlive the step's start.
  static absl::StatusOr<std::unique_ptr<WorkerStep>> start(const StepPlan& plan);

  // Returns ok while the step runs, with or without srun; otherwise an error with srun's message.
  absl::Status health();
  // Kills srun's helper and then srun, which leaves the step running. Does nothing if the helper is
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

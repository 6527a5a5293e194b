// Runs one job in one allocation, from its submission until the job ends or Slurm ends the
// allocation.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "cli/jobs/log_printer.h"
#include "cli/run/embedded_fleet.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_watch.h"
#include "cli/slurm/slurm_allocations.h"
#include "cli/slurm/slurm_limit.h"
#include "cli/slurm/slurm_nodes.h"
#include "cli/slurm/slurm_setup.h"
#include "common/process/stop_requests.h"

namespace muster::cli {

class SlurmSession {
 public:
  // Objects that the session uses.
  struct Parts {
    const SlurmJob& slurm;
    const SlurmSignals& signals;
    EmbeddedFleet& fleet;
    WorkerStep& step;
    LogPrinter& printer;
    Client& client;
    const RunFolder& folder;
    NextAllocation& next_allocation;
    Duration leave_time;  // the ranks' grace when the job leaves
  };
  // Requires that all objects in `parts` outlive the session. `saves`: the job writes checkpoints,
  // so that a requeue is useful.
  SlurmSession(const Parts& parts, const v1::JobSpec& spec, bool saves);
  ~SlurmSession();
  SlurmSession(const SlurmSession&) = delete;
  SlurmSession& operator=(const SlurmSession&) = delete;

  // Blocks until the job or the allocation ends. Returns the exit code of the job, or the error
  // because of which the job could not be followed.
  absl::StatusOr<int> follow();
  v1::Job job() const { return watch_.job(); }
  // Returns the decision about a requeue of a job that was requested to leave; nullopt for a job
  // that ended by itself.
  const std::optional<LeaveDecision>& leave_decision() const { return leave_decision_; }
  // Returns the facts about this allocation so far.
  Allocation allocation() const;

 private:
  void wait_for_event();
  void take_signals();
  // Makes the ranks leave when the time limit is near.
  void leave_before_limit();
  void poll_workers();
  // Requests that the ranks save and exit.
  void leave(LeaveDecision leave_decision);
  // Handles SIGTERM that arrives after leave().
  void handle_end();
  void advise(bool saved);
  bool is_done();
  absl::Status trouble();

  const Parts parts_;
  const bool saves_;
  const bool is_program_;
  const Instant began_;
  RunWatch watch_;
  SlurmNodes nodes_;
  LimitWarning limit_;
  std::optional<LeaveDecision> leave_decision_;
  absl::Status fault_;  // error when all workers ended by themselves
  // time after which the session no longer waits for the job's end
  std::optional<Instant> leave_by_;
  std::optional<Instant> logs_by_;
  std::optional<Instant> starved_since_;
  std::optional<Instant> query_workers_at_;
  std::optional<Instant> leave_requested_at_;  // time of the request to leave
  std::optional<int64_t> lead_seconds_;        // time from SIGUSR1 to the time limit
  // the highest step at the time of the request to leave
  int64_t step_ = -1;
  StopRequests interrupts_;  // requests by SIGINT
};

}  // namespace muster::cli

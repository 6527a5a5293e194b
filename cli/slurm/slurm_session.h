// One job in one allocation, from its submission until the job ends or Slurm ends the allocation.
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
#include "common/stop_requests.h"

namespace muster::cli {

class SlurmSession {
 public:
  struct Parts {
    const SlurmJob& slurm;
    const SlurmSignals& signals;
    EmbeddedFleet& fleet;
    WorkerStep& step;
    LogPrinter& printer;
    Client& client;
    const RunFolder& folder;
    NextAllocation& next_allocation;
    Duration leave_time;  // grace of the ranks
  };
  // All of `parts` must outlive it. `saves`: the job writes checkpoints, so that a requeue is
  // useful.
  SlurmSession(const Parts& parts, const v1::JobSpec& spec, bool saves);
  ~SlurmSession();
  SlurmSession(const SlurmSession&) = delete;
  SlurmSession& operator=(const SlurmSession&) = delete;

  // Returns the exit code of the job as it ended, or why it could not be followed.
  absl::StatusOr<int> follow();
  v1::Job job() const { return watch_.job(); }
  // For a job that was asked to leave: whether it is requeued. nullopt for a job that ended by
  // itself.
  const std::optional<LeaveDecision>& leave_decision() const { return leave_decision_; }
  // Returns what is known of this allocation so far.
  Allocation allocation() const;

 private:
  void wait_for_change();
  void take_signals();
  // Handles the near time limit.
  void leave_before_limit();
  void poll_workers();
  // Asks the ranks to save and leave.
  void leave(LeaveDecision leave_decision);
  // Handles SIGTERM after they were asked.
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
  absl::Status fault_;               // error when all workers ended by themselves
  std::optional<Instant> leave_by_;  // the rest is not waited for after this
  std::optional<Instant> logs_by_;
  std::optional<Instant> starved_since_;
  std::optional<Instant> query_workers_at_;
  std::optional<Instant> leave_requested_at_;  // when it was asked to leave
  std::optional<int64_t> lead_seconds_;        // from SIGUSR1 to the time limit
  int64_t step_ = -1;                          // the highest step when it was asked to leave
  StopRequests interrupts_;                    // SIGINT
};

}  // namespace muster::cli

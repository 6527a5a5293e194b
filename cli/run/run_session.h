// One job of `muster run`, from its submission to the last line of its logs.
#pragma once

#include <optional>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/client.h"
#include "cli/jobs/log_printer.h"
#include "cli/run/embedded_fleet.h"
#include "cli/run/interrupts.h"
#include "cli/run/requested_job.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_watch.h"
#include "cli/run/save_view.h"
#include "cli/run/shutdown_deadline.h"

namespace muster::cli {

// Follows the job, and leaves it on Ctrl-C. Called on one thread.
class RunSession {
 public:
  // `leave_seconds`: the ranks' grace; nullopt: as long as their saves make progress. All
  // references must outlive this object.
  RunSession(EmbeddedFleet& fleet, Interrupts& interrupts, LogPrinter& printer, Client& client,
             const RequestedJob& job, const RunFolder& folder,
             std::optional<int32_t> leave_seconds);

  // Ends the calls. Unprinted output is discarded.
  ~RunSession();
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;

  // Returns the exit code, or why the job could not be followed to its end. The daemons still run
  // unless they had to be killed.
  absl::StatusOr<int> follow();
  v1::Job job() const { return watch_.job(); }
  const ShutdownDeadline& time() const { return time_; }

 private:
  bool is_done();
  absl::Status mend();
  void take_interrupts();
  void watch_last_save();
  void report_save();
  int kill_remaining();
  void print_remaining();

  EmbeddedFleet& fleet_;
  Interrupts& interrupts_;
  LogPrinter& printer_;
  RunWatch watch_;
  int leave_requests_ = 0;
  bool output_closed_ = false;  // the closed output was the first request to leave
  const bool trains_;
  SaveCircumstances saves_;
  SaveReport save_report_;
  ShutdownDeadline time_;
};

}  // namespace muster::cli

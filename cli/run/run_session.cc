#include "cli/run/run_session.h"

#include <vector>

#include <absl/strings/str_cat.h>

#include "cli/incidents/incident_files.h"
#include "cli/terminal/wait_readable.h"
#include "common/process/exit_code.h"
#include "common/time/time.h"

namespace muster::cli {
namespace {

// The daemons' stop time is added to the ranks' grace.
ShutdownDeadline leave_time(const std::optional<int32_t>& leave_seconds) {
  return leave_seconds ? ShutdownDeadline(std::chrono::seconds(*leave_seconds) + kShutdownTime)
                       : ShutdownDeadline(kShutdownTime, /*waits_for_saves=*/true);
}

}  // namespace

RunSession::RunSession(EmbeddedFleet& fleet, Interrupts& interrupts, LogPrinter& printer,
                       Client& client, const RequestedJob& job, const RunFolder& folder,
                       std::optional<int32_t> leave_seconds)
    : fleet_(fleet),
      interrupts_(interrupts),
      printer_(printer),
      watch_(client, printer, job.spec,
             {.address = fleet.address(),
              .on_incident =
                  [&](uint64_t incident) {
                    // Saved immediately, because a user who sees the incident may kill the run.
                    // At the end it is written again, and reported.
                    (void)save_incident(client, incident, folder);
                  }}),
      trains_(job.spec.command_size() == 0),
      saves_{.saves = job.saves, .leave_seconds = leave_seconds},
      time_(leave_time(leave_seconds)) {}

RunSession::~RunSession() {
  if (!watch_.logs_are_complete()) printer_.give_up();
}

void RunSession::take_interrupts() {
  // A closed output (`muster run | head`) is a request to leave. Once the output is in a hurry, its
  // closing means nothing.
  if (interrupts_.take() == 0 && watch_.output_is_closed()) {
    output_closed_ = true;
    interrupts_.add_request();
  }
  const int requests = interrupts_.take();
  if (requests == leave_requests_) return;
  const bool is_first = leave_requests_ == 0;
  leave_requests_ = requests;
  printer_.hurry();
  // A job that the coordinator has not accepted yet has nothing to save.
  if (requests > 1 || watch_.job().id() == 0) return time_.leave_at_once(monotonic_now());
  time_.leave(monotonic_now());
  if (!is_first || watch_.has_ended()) return;
  watch_.cancel();
  printer_.notice(absl::StrCat(
      output_closed_ ? "the output was closed: " : "",
      "stopping: the ranks save a checkpoint and leave; press Ctrl-C again to kill them"));
}

// Reports how far the last save is, and moves the deadline with it.
void RunSession::watch_last_save() {
  const v1::Job job = watch_.leaving_job();
  if (job.id() == 0 || watch_.has_ended()) return;
  const SaveProgress save = save_of(job);
  if (save.total > 0) saves_.save = save;
  time_.observe_save(save, monotonic_now());
  const int64_t step = job.ranks_size() > 0 ? job.ranks(0).step() : 0;
  if (const std::string line = save_report_.line(save, step, monotonic_now()); !line.empty())
    printer_.notice(line);
}

// Called after the end of a job that left on request.
void RunSession::report_save() {
  const v1::Job job = watch_.leaving_job();
  if (!trains_ || job.ranks_size() == 0) return;
  saves_.was_killed = leave_requests_ > 1;
  saves_.reason = watch_.reason_not_saved();
  printer_.notice(save_result(job.ranks(0).step(), job.ranks(0).checkpoint_step(), saves_));
}

// True when the final state and the last line of the logs have arrived, or the wait for that line
// has timed out.
bool RunSession::is_done() {
  if (!watch_.has_ended()) return false;
  time_.job_ended(monotonic_now(), printer_.is_behind());
  return (watch_.logs_are_complete() && watch_.end_is_known()) || time_.has_passed(monotonic_now());
}

int RunSession::kill_remaining() {
  fleet_.kill();
  if (watch_.job().id() != 0) {
    printer_.notice(leave_requests_ > 1 ? "killing the remaining processes"
                                        : "no checkpoint in time; killing the remaining processes");
    report_save();
  }
  return to_int(ExitCode::kInterrupted);
}

// Prints what was received before the failure.
void RunSession::print_remaining() {
  if (watch_.job().id() == 0) return;
  printer_.hurry();
  watch_.stop();
  time_.job_ended(monotonic_now(), false);
  while (!watch_.logs_are_complete() && !time_.has_passed(monotonic_now())) {
    std::vector<pollfd> fds = {readable(interrupts_.fd()), readable(watch_.event_fd())};
    wait_readable(fds, time_.wait_until());
    watch_.reset_event();
    take_interrupts();
  }
}

// A run that is leaving does not restart daemons.
absl::Status RunSession::mend() {
  if (leave_requests_ > 0) return fleet_.health();
  std::vector<std::string> notes;
  const absl::Status status = fleet_.mend(notes, watch_.job().attempt());
  for (const std::string& note : notes) printer_.notice(note);
  return status;
}

absl::StatusOr<int> RunSession::follow() {
  while (!is_done()) {
    // After the job's end only its output is awaited; a daemon that has ended would end every wait
    // at once.
    const bool has_ended = watch_.has_ended();
    std::vector<pollfd> fds = {readable(interrupts_.fd()), readable(watch_.event_fd()),
                               readable(has_ended ? -1 : fleet_.coordinator().pidfd()),
                               readable(has_ended ? -1 : fleet_.worker()->pidfd())};
    wait_readable(fds, time_.wait_until());
    watch_.reset_event();
    take_interrupts();
    watch_last_save();
    if (watch_.has_ended()) continue;
    if (time_.has_passed(monotonic_now())) return kill_remaining();
    absl::Status trouble = mend();
    if (trouble.ok()) trouble = watch_.trouble();
    if (!trouble.ok()) return print_remaining(), trouble;
  }
  const v1::Job job = watch_.job();
  if (leave_requests_ > 0) report_save();
  return leave_requests_ > 0 && job.state() == v1::CANCELLED ? to_int(ExitCode::kInterrupted)
                                                             : job.exit_code();
}

}  // namespace muster::cli

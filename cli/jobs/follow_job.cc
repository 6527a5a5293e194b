#include "cli/jobs/follow_job.h"

#include <unistd.h>

#include <array>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/jobs/log_printer.h"
#include "cli/run/interrupts.h"
#include "cli/run/run_watch.h"
#include "cli/run/shutdown_deadline.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/wait_readable.h"
#include "common/process/exit_code.h"

namespace muster::cli {
namespace {

// Returns the exit code, or why the job could not be followed.
absl::StatusOr<int> follow(const RunWatch& watch, Interrupts& interrupts, LogPrinter& printer) {
  ShutdownDeadline time;
  while (true) {
    if (watch.has_ended()) {
      time.job_ended(monotonic_now(), printer.is_behind());
      if (watch.logs_are_complete() || time.has_passed(monotonic_now()))
        return watch.job().exit_code();
    }
    std::array<pollfd, 2> fds = {readable(interrupts.fd()), readable(watch.event_fd())};
    wait_readable(fds, time.wait_until());
    watch.reset_event();
    if (interrupts.take() > 0 || watch.output_is_closed()) {
      const uint64_t id = watch.job().id();
      printer.notice(id == 0
                         ? "it is unknown whether the job was accepted; check with: muster list"
                         : absl::StrCat("job ", id, " continues; follow it with: muster logs -f ",
                                        id, ", end it with: muster cancel ", id));
      return to_int(ExitCode::kInterrupted);
    }
    if (auto status = watch.trouble(); !status.ok()) return status;
  }
}

}  // namespace

int submit_and_follow(const CoordinatorTarget& coordinator, const v1::JobSpec& spec,
                      const std::string& request_id, const std::function<void(Client&)>& first) {
  auto interrupts = Interrupts::block();
  if (!interrupts.ok()) return fail(interrupts.status());
  Client client(coordinator);
  first(client);
  Output output(STDOUT_FILENO), notice(STDERR_FILENO);
  LogPrinter printer(output, notice,
                     {.steps = spec.steps(),
                      .ranks = spec.nodes() * spec.ranks_per_node(),
                      .thin_steps = true,
                      .live = true});
  absl::StatusOr<int> end = 0;
  {
    RunWatch watch(client, printer, spec,
                   {.address = coordinator.address, .request_id = request_id, .is_own = false});
    end = follow(watch, **interrupts, printer);
    if (!watch.logs_are_complete()) printer.give_up();
  }
  printer.finish();
  const int unwritten = end_of_output(output.error());
  if (!end.ok()) return fail(end.status());
  return *end == to_int(ExitCode::kInterrupted) && unwritten != 0 ? unwritten : *end;
}

}  // namespace muster::cli

#include "cli/text/text_stop.h"

#include <signal.h>

#include "cli/terminal/terminal.h"
#include "common/process/exit_code.h"

namespace muster::cli {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");
std::atomic<bool> stop_requested{false};

void on_signal(int number) {
  stop_requested = true;
  signal(number, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& stop_on_signal() {
  for (const int number : {SIGINT, SIGTERM}) signal(number, on_signal);
  return stop_requested;
}

int fail_or_stop(const absl::Status& status) {
  const int code = fail(status);
  return absl::IsCancelled(status) ? to_int(ExitCode::kInterrupted) : code;
}

}  // namespace muster::cli

#include "cli/run/run_input.h"

#include <unistd.h>

namespace muster::cli {

absl::StatusOr<RunInput> RunInput::of(bool is_wanted) {
  RunInput input;
  if (!is_wanted) return input;
  input.fd_ = STDIN_FILENO;
  if (isatty(STDIN_FILENO) == 0) return input;
  auto terminal = TerminalInput::start(STDIN_FILENO);
  if (!terminal.ok()) return terminal.status();
  input.terminal_ = *std::move(terminal);
  input.fd_ = input.terminal_->fd();
  return input;
}

}  // namespace muster::cli

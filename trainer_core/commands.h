// The commands of muster-trainer. Each explains its errors on stderr and returns the process's exit code.
#pragma once

#include <atomic>
#include <span>
#include <string_view>

#include "common/exit_code.h"

namespace muster::trainer {

// What signals set and the training loop reads.
struct StopSignals {
  std::atomic<bool> stop{false};  // checkpoint and leave
  std::atomic<bool> training{
      false};  // before that there is nothing to save: a signal ends the process
};

ExitCode train_command(std::span<const std::string_view> arguments, StopSignals& signals);
ExitCode check_command(std::span<const std::string_view> arguments);
ExitCode decode_command(std::span<const std::string_view> arguments);

}  // namespace muster::trainer

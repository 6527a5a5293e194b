// The commands of muster-trainer. Each explains its errors on stderr and returns the process's exit code.
#pragma once

#include <span>
#include <string_view>

#include "common/exit_code.h"
#include "trainer_core/stop_signals.h"

namespace muster::trainer {

ExitCode train_command(std::span<const std::string_view> arguments, StopSignals& signals);
ExitCode check_command(std::span<const std::string_view> arguments);
ExitCode decode_command(std::span<const std::string_view> arguments);
ExitCode debug_step_command(std::span<const std::string_view> arguments);
// What a command has to say, on standard output.
ExitCode print_result(std::string_view text);

}  // namespace muster::trainer

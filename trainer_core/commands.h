// The commands of muster-trainer. Each prints its errors on stderr and returns the process's exit
// code.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "common/exit_code.h"
#include "common/progress_page.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/rank/stop_signals.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// Called after each step, on the training thread.
using StepHook = std::function<void(ProcessGroups&, ProgressWriter&, const StepRecord&)>;

// `hook` may be empty.
ExitCode train_command(std::span<const std::string_view> arguments, StopSignals& signals,
                       const StepHook& hook = nullptr);
ExitCode check_command(std::span<const std::string_view> arguments);
// Exit code 1: the node is not fit for ranks.
ExitCode check_node_command(std::span<const std::string_view> arguments);
// Prints measure_cpu_speed() as JSON.
ExitCode cpu_speed_command();
ExitCode decode_command(std::span<const std::string_view> arguments);
ExitCode debug_step_command(std::span<const std::string_view> arguments);
// Prints a command's result on standard output.
ExitCode print_result(std::string_view text);

}  // namespace muster::trainer

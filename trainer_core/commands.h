// The commands of muster-trainer. Each prints its errors to standard error and returns the exit
// code of the process.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "common/process/exit_code.h"
#include "common/progress/progress_page.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/rank/stop_signals.h"
#include "trainer_core/report/step_log.h"
#include "trainer_core/startup/command_line.h"
#include "trainer_core/startup/rank_env.h"

namespace muster::trainer {

// Called after each step, on the training thread.
using StepHook = std::function<void(ProcessGroups&, ProgressWriter&, const StepRecord&)>;

// Runs a rank of a training. `hook` may be empty. `end_process` ends the process when a later
// attempt of the job owns the checkpoint directory; null: the rank ends at its next save.
ExitCode train_command(std::span<const std::string_view> arguments, StopSignals& signals,
                       const StepHook& hook = nullptr, EndProcess end_process = nullptr);
// Checks a config (startup/preflight.h).
ExitCode check_command(std::span<const std::string_view> arguments);
// Prints the memory that a config needs on devices that this machine need not have
// (forecast/memory_forecast.h), as JSON.
ExitCode plan_command(std::span<const std::string_view> arguments);
// Forecasts the times of steps of several jobs, for calibration: answers each JSON line of the
// standard input with a line.
ExitCode step_times_command(std::span<const std::string_view> arguments);
// Measures this rank's device (forecast/device_bench.h). Rank 0 writes a JSON file.
ExitCode bench_device_command(std::span<const std::string_view> arguments);
// Checks this machine (startup/node_check.h), also deeply (startup/deep_check.h) or together with
// other nodes (startup/group_check.h). Returns exit code 1 if it cannot run ranks.
ExitCode check_node_command(std::span<const std::string_view> arguments);
// Prints measure_cpu_speed() as JSON.
ExitCode cpu_speed_command();
// Generates text (tools/decode.h).
ExitCode decode_command(std::span<const std::string_view> arguments);
// Evaluates a checkpoint on tasks, in this process (loop/evaluation.h).
ExitCode eval_command(std::span<const std::string_view> arguments, StopSignals& signals);
// Writes the results of one step (tools/debug_step.h).
ExitCode debug_step_command(std::span<const std::string_view> arguments);
// Connects a rank with the others, as its environment describes them.
absl::StatusOr<std::shared_ptr<Transport>> join_world(const RankEnv& env);
// Prints the error of a command to standard error, with control characters escaped. Returns the
// exit code for it.
ExitCode report(const std::string& who, const absl::Status& status);
// Returns the config of --config FILE, or else that of the training of --checkpoint FOLDER, with
// the tokenizer of --tokenizer.
absl::StatusOr<TrainConfig> checkpoint_config(const CommandLine& line);
// Returns the config of --config FILE.
absl::StatusOr<TrainConfig> config_option(const CommandLine& line);
// Prints the result of a command to standard output. Returns the exit code of the command.
ExitCode print_result(std::string_view text);

}  // namespace muster::trainer

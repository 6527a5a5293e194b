// muster-trainer: runs one rank of a training job, and tools for its files.
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/process/standard_descriptors.h"
#include "common/version.h"
#include "trainer_core/commands.h"
#include "trainer_core/rank/signal_watcher.h"
#include "trainer_core/startup/uncaught.h"

namespace {

using muster::ExitCode;
using muster::trainer::SignalWatcher;
using muster::trainer::StopSignals;

constexpr char kUsage[] =
    R"(muster-trainer: one rank of a training job. Use `muster`, which runs it.

Train, as rank 0 of 1, or as the rank given by RANK, WORLD_SIZE and MUSTER_RENDEZVOUS:
  muster-trainer train --config config.json

Evaluate a checkpoint on tasks, as `muster eval`, which runs it:
  muster-trainer eval --checkpoint out/checkpoints --tasks lambada=lambada_test_en.jsonl

Check that data, tokenizer and checkpoints match a config before anything starts; with --here, this machine's memory, too, unless --no-plan is given:
  muster-trainer check --config config.json --here

Print the memory that a config needs on a device, which this machine need not have, as JSON:
  muster-trainer plan --config config.json --device "NVIDIA H100 80GB HBM3" --memory-mib 81009

Forecast the times of steps, for bench/step_times.py: answers JSON lines of the standard input:
  muster-trainer step-times

Measure this rank's device for forecasts, and write a JSON file; `muster bench device` runs it:
  muster-trainer bench-device --out measured.json --hardware auto --dtype float32

Check that this machine can run ranks: cores, memory, the folder, /dev/shm, loopback, clocks. Takes a fraction of a second:
  muster-trainer check-node --work-dir /scratch/muster

Also test GEMM, memory, copies and storage, and measure their speeds, for about a second each; `muster node check --deep` runs it on idle nodes:
  muster-trainer check-node --deep --work-dir /scratch/muster --storage-dir /data --seconds 1

Measure whether bfloat16 is as fast as float32 on this CPU, which decides the default of dtype:
  muster-trainer cpu-speed

Continue a text, greedily or by sampling:
  muster-trainer decode --checkpoint out/checkpoints --prompt "In the beginning" --max-tokens 64
  muster-trainer decode --config config.json --latest --prompt "And" --temperature 0.8 --top-k 40 --top-p 0.95 --seed 7
  muster-trainer decode --checkpoint out/checkpoints --prompts prompts.txt --tensor-parallel 4
  muster-trainer decode --checkpoint out/checkpoints --prompts prompts.txt --hardware gpu

Write what one step computes on given tokens, to compare with another implementation:
  muster-trainer debug-step --config config.json --folder FOLDER --tokens tokens.json --out step.safetensors

  muster-trainer version

SIGTERM and SIGUSR1 make all ranks save a checkpoint and leave (exit code 75), SIGUSR2 makes them save one and continue.
Exit codes: 0 done, 1 failure, 2 bad input, 3 loss not finite or spikes, 4 disk full, 5 checkpoint
directory away, 75 stopped on request, 76 another rank is lost.
)";

void end_process(ExitCode code) { _exit(muster::to_int(code)); }

ExitCode train(std::span<const std::string_view> arguments) {
  StopSignals signals;
  const SignalWatcher watcher(signals, end_process);
  return muster::trainer::train_command(arguments, signals, nullptr, end_process);
}

ExitCode eval(std::span<const std::string_view> arguments) {
  StopSignals signals;
  const SignalWatcher watcher(signals, end_process);
  return muster::trainer::eval_command(arguments, signals);
}

ExitCode run(const std::vector<std::string_view>& arguments) {
  const std::string_view command = arguments.empty() ? "--help" : arguments[0];
  const auto rest = std::span(arguments).subspan(arguments.empty() ? 0 : 1);
  const bool wants_help = command == "--help" || command == "-h" || command == "help" ||
                          (!rest.empty() && (rest[0] == "--help" || rest[0] == "-h"));
  if (wants_help) {
    return muster::trainer::print_result(kUsage);
  }
  if (command == "version" || command == "--version") {
    return muster::trainer::print_result(std::string("muster-trainer ") + muster::kVersion + "\n");
  }
  if (command == "train") return train(rest);
  if (command == "eval") return eval(rest);
  if (command == "check") return muster::trainer::check_command(rest);
  if (command == "plan") return muster::trainer::plan_command(rest);
  if (command == "step-times") return muster::trainer::step_times_command(rest);
  if (command == "bench-device") return muster::trainer::bench_device_command(rest);
  if (command == "check-node") return muster::trainer::check_node_command(rest);
  if (command == "cpu-speed") return muster::trainer::cpu_speed_command();
  if (command == "decode") return muster::trainer::decode_command(rest);
  if (command == "debug-step") return muster::trainer::debug_step_command(rest);
  std::cerr << "muster-trainer: unknown command \"" << command
            << "\"; one of train, eval, check, plan, step-times, bench-device, check-node, "
               "cpu-speed, decode, debug-step, version\n";
  return ExitCode::kBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  muster::hold_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);  // the loss of a peer is reported as an error of its connection
  std::signal(SIGXFSZ, SIG_IGN);  // the file size limit is reported as an error of write()
  muster::trainer::end_at_uncaught_exceptions("muster-trainer");
  return muster::to_int(run(std::vector<std::string_view>(argv + 1, argv + argc)));
}

// The commands of `muster`. Each source file declares one, with its options, help and examples.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/coordinator_target.h"

namespace muster::cli {

// The function that main() runs after parsing the command line; returns the exit code of the
// process.
using Action = std::function<int()>;

void declare_run(CLI::App& app, Action& action);
void declare_submit(CLI::App& app, Action& action);
void declare_list(CLI::App& app, Action& action);
void declare_status(CLI::App& app, Action& action);
void declare_logs(CLI::App& app, Action& action);
void declare_stacks(CLI::App& app, Action& action);
void declare_goodput(CLI::App& app, Action& action);
void declare_incident(CLI::App& app, Action& action);
void declare_node(CLI::App& app, Action& action);
void declare_checkpoint(CLI::App& app, Action& action);
void declare_cancel(CLI::App& app, Action& action);
void declare_slurm(CLI::App& app, Action& action);
void declare_k8s(CLI::App& app, Action& action);
// Declares train-tokenizer and tokenize. `argv` is the one of main().
void declare_text_commands(CLI::App& app, Action& action, char** argv);
void declare_convert(CLI::App& app, Action& action, char** argv);
void declare_decode(CLI::App& app, Action& action);
void declare_config(CLI::App& app, Action& action);
void declare_debug(CLI::App& app, Action& action);
void declare_metrics(CLI::App& app, Action& action);
void declare_version(CLI::App& app, Action& action);
// Must be the last declaration: it completes the commands declared before it.
void declare_completion(CLI::App& app, Action& action);

// Declares every command. Requires a fresh app.
void declare_all(CLI::App& app, Action& action, char** argv);

// Options shared by several commands.
void add_coordinator_address_option(CLI::App& command, std::string& address);
// Adds the address and the flags for TLS and tokens.
void add_coordinator_option(CLI::App& command, CoordinatorTarget& coordinator);
// Adds the job number, at least 1.
CLI::Option* add_job_argument(CLI::App& command, uint64_t& job);
void add_json_option(CLI::App& command, bool& json);

// Makes `command` run `run` with its parsed options.
template <class Options>
void on_call(CLI::App& command, Action& action, std::shared_ptr<Options> options,
             int (*run)(const Options&)) {
  command.callback([&action, options = std::move(options), run] {
    action = [options, run] { return run(*options); };
  });
}

}  // namespace muster::cli

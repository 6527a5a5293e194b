// The commands of `muster`. Each source file declares one command, with its options, help and
// examples.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/coordinator_target.h"

namespace muster::cli {

// The function that main() runs after it has parsed the command line; returns the exit code of the
// process.
using Action = std::function<int()>;

// Each function declares a command on `app`. When the command line selects the command, parsing
// sets `action`.
void declare_run(CLI::App& app, Action& action);
void declare_plan(CLI::App& app, Action& action);
void declare_bench(CLI::App& app, Action& action);
void declare_submit(CLI::App& app, Action& action);
void declare_list(CLI::App& app, Action& action);
void declare_shares(CLI::App& app, Action& action);
void declare_status(CLI::App& app, Action& action);
void declare_logs(CLI::App& app, Action& action);
void declare_stacks(CLI::App& app, Action& action);
void declare_history(CLI::App& app, Action& action);
void declare_goodput(CLI::App& app, Action& action);
void declare_incident(CLI::App& app, Action& action);
void declare_node(CLI::App& app, Action& action);
void declare_admin(CLI::App& app, Action& action);
void declare_checkpoint(CLI::App& app, Action& action);
void declare_update(CLI::App& app, Action& action);
void declare_cancel(CLI::App& app, Action& action);
void declare_open(CLI::App& app, Action& action);
void declare_slurm(CLI::App& app, Action& action);
void declare_k8s(CLI::App& app, Action& action);
// Declares train-tokenizer and tokenize. `argv`: the argument of main().
void declare_text_commands(CLI::App& app, Action& action, char** argv);
void declare_convert(CLI::App& app, Action& action, char** argv);
void declare_doctor(CLI::App& app, Action& action);
void declare_decode(CLI::App& app, Action& action);
void declare_eval(CLI::App& app, Action& action);
void declare_serve(CLI::App& app, Action& action, char** argv);
void declare_config(CLI::App& app, Action& action);
void declare_debug(CLI::App& app, Action& action);
void declare_explain(CLI::App& app, Action& action);
void declare_metrics(CLI::App& app, Action& action);
void declare_version(CLI::App& app, Action& action);
// Declares the command that prints completion scripts. Requires that all other commands are
// declared already, because the scripts complete these.
void declare_completion(CLI::App& app, Action& action);

// Declares every command. Requires an app without commands.
void declare_all(CLI::App& app, Action& action, char** argv);

// Declare options that several commands share.
void add_coordinator_address_option(CLI::App& command, std::string& address);
// Adds the coordinator's address, and the flags for TLS and tokens.
void add_coordinator_option(CLI::App& command, CoordinatorTarget& coordinator);
// Adds the positional argument for a job number, at least 1.
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

#include "cli/command.h"

#include <utility>

#include "daemon/help.h"

namespace muster::cli {
namespace {

// Puts the commands declared on `app` since the last call into one group.
void group(CLI::App& app, const std::string& name) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group() == app.get_group()) command->group(name);
  }
}

}  // namespace

void declare_all(CLI::App& app, Action& action, char** argv) {
  daemon::use_our_help(app);
  app.description("Muster trains large models: it launches, watches and recovers their jobs.");
  app.require_subcommand(1);
  declare_run(app, action);
  declare_plan(app, action);
  declare_bench(app, action);
  declare_decode(app, action);
  declare_eval(app, action);
  declare_serve(app, action, argv);
  declare_convert(app, action, argv);
  declare_doctor(app, action);
  group(app, "On this machine");
  declare_text_commands(app, action, argv);
  group(app, "From a text to training data");
  declare_submit(app, action);
  declare_list(app, action);
  declare_shares(app, action);
  declare_status(app, action);
  declare_logs(app, action);
  declare_stacks(app, action);
  declare_incident(app, action);
  declare_history(app, action);
  declare_node(app, action);
  declare_admin(app, action);
  declare_goodput(app, action);
  declare_checkpoint(app, action);
  declare_update(app, action);
  declare_cancel(app, action);
  declare_open(app, action);
  group(app, "With a coordinator and its workers");
  declare_slurm(app, action);
  declare_k8s(app, action);
  group(app, "On a cluster with Slurm or Kubernetes");
  declare_config(app, action);
  declare_debug(app, action);
  declare_explain(app, action);
  declare_metrics(app, action);
  declare_version(app, action);
  declare_completion(app, action);
  group(app, "More");
  // Set last: a command copies the footer that exists when it is declared.
  app.footer(
      "Begin here:\n"
      "  muster run configs/base.yml model_name=llama2-tiny run_name=first steps=20 --ranks 4\n"
      "\n"
      "`muster COMMAND --help` teaches each command by example.\n"
      "Exit codes: 0 done, 1 failure, 2 bad input, 3 the loss is not finite, 4 the disk is "
      "full, 5 the\ncheckpoint storage is away, 6 restarts made no progress, 75 stopped on "
      "request, "
      "130 Ctrl-C.");
}

}  // namespace muster::cli

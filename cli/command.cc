#include "cli/command.h"

#include "common/version.h"

namespace muster::cli {

void declare_all(CLI::App& app, Action& action, char** argv) {
  app.description("Muster trains large models: it launches, watches and recovers their jobs.");
  app.footer(
      "Begin here:\n"
      "  muster run configs/base.yml model_name=llama2-tiny run_name=first steps=20 --ranks 4\n"
      "\n"
      "`muster COMMAND --help` teaches each command by example.\n"
      "Exit codes: 0 done, 1 failure, 2 bad input, 3 the loss is not finite, 75 stopped on "
      "request, 130 Ctrl-C.");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("muster ") + kVersion);
  declare_run(app, action);
  declare_submit(app, action);
  declare_list(app, action);
  declare_status(app, action);
  declare_logs(app, action);
  declare_cancel(app, action);
  declare_text_commands(app, action, argv);
  declare_decode(app, action);
  declare_config(app, action);
  declare_version(app, action);
  declare_completion(app, action);
}

}  // namespace muster::cli

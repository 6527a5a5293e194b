// muster serve: executes muster-serve, which links the trainer; this program has gRPC, and the two
// crash in one process (text_commands.h).
#include <unistd.h>

#include <cerrno>
#include <memory>

#include <absl/strings/str_cat.h>

#include "cli/command.h"
#include "cli/terminal/child_process.h"
#include "cli/terminal/terminal.h"
#include "common/files/errno_status.h"
#include "serve/serve_options.h"

namespace muster::cli {

void declare_serve(CLI::App& app, Action& action, char** argv) {
  auto arguments = std::make_shared<serve::ServeArguments>();
  // The options are parsed here, too, so that errors are reported before anything starts.
  serve::describe_serve(app, *arguments).callback([&action, argv, arguments] {
    action = [argv, arguments] {
      if (auto status = serve::check_arguments(*arguments); !status.ok()) return fail(status);
      const auto program = sibling_program("muster-serve");
      if (!program.ok()) return fail(program.status());
      execv(program->c_str(), argv);
      return fail(errno_status(errno, absl::StrCat("starting ", *program)));
    };
  });
}

}  // namespace muster::cli

// muster: the command line.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include <absl/strings/str_cat.h>

#include "cli/command.h"
#include "cli/parse_errors.h"
#include "cli/run/entry_points.h"
#include "cli/run/pasted_command.h"
#include "cli/terminal/terminal.h"
#include "common/process/exit_code.h"
#include "common/process/standard_descriptors.h"
#include "common/process/start_limits.h"
#include "daemon/command_line.h"

namespace {

bool is_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = muster::daemon::names_of(muster::daemon::commands_of(app));
  return std::find(names.begin(), names.end(), word) != names.end();
}

int run(int argc, char** argv) {
  auto mapped = muster::cli::map_entry_point({argv + std::min(argc, 1), argv + argc});
  if (!mapped.ok()) return muster::cli::fail(mapped.status());
  if (!mapped->note.empty()) muster::cli::note(mapped->note);
  std::vector<std::string> words = std::move(mapped->words);
  // muster-text parses the same words again.
  std::vector<char*> own_argv = {argv[0]};
  std::vector<std::string> text = words;
  for (std::string& word : text) own_argv.push_back(word.data());
  own_argv.push_back(nullptr);
  CLI::App app("", "muster");
  muster::cli::Action action;
  muster::cli::declare_all(app, action, own_argv.data());
  if (words.empty()) {
    muster::cli::print_result(app.help());
    return muster::to_int(muster::ExitCode::kBadInput);
  }
  // `muster help run` is the form of other programs.
  if (words[0] == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  }
  if (!words[0].starts_with("-") && !is_command(app, words[0])) {
    return muster::cli::fail(muster::daemon::unknown_command(app, "muster", words[0]));
  }
  auto arranged = muster::cli::arrange_pasted_command(app, words);
  if (!arranged.ok()) return muster::cli::fail(arranged.status());
  words = std::move(arranged->words);
  // The shell would have set these for python.
  for (const std::string& assignment : arranged->key_variables) {
    const size_t equals = assignment.find('=');
    setenv(assignment.substr(0, equals).c_str(), assignment.substr(equals + 1).c_str(), 1);
  }
  // CLI11 takes the words in reverse order
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream message;
      app.exit(error, message, message);
      return muster::cli::print_result(message.str());
    }
    return muster::cli::fail(muster::cli::explain(app, error, words));
  }
  return action ? action() : muster::to_int(muster::ExitCode::kBadInput);
}

}  // namespace

int main(int argc, char** argv) {
  muster::hold_standard_descriptors();
  muster::name_limits_at_abort("muster");
  // gRPC's log is about its internals; errors come back as a status.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  signal(SIGPIPE, SIG_IGN);  // write() to a closed pipe fails with EPIPE
  signal(SIGXFSZ, SIG_IGN);  // write() above the file size limit fails with EFBIG
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    const std::string limits = muster::describe_limits(muster::shell_limits());
    return muster::cli::fail(absl::InternalError(
        limits.empty() ? error.what()
                       : absl::StrCat(error.what(), " (limits of this process: ", limits, ")")));
  }
}

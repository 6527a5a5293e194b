// muster: the command line.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <iostream>
#include <vector>

#include <absl/strings/str_cat.h>

#include "cli/command.h"
#include "cli/terminal.h"
#include "common/absl_view.h"
#include "common/exit_code.h"
#include "common/nearest.h"

namespace {

// CLI11 would only say that the word was not expected.
absl::Status unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view nearest = muster::nearest_name(word, views);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown command ", word,
      nearest.empty() ? "; muster --help lists them"
                      : absl::StrCat("; did you mean muster ", muster::av(nearest), "?")));
}

bool is_command(const CLI::App& app, const std::string& word) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return true;
  }
  return false;
}

// "; did you mean --ranks?" for the first option that `command` does not know, or nothing.
std::string nearest_option(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  for (const std::string& word : command.remaining()) {
    if (!word.starts_with("--")) continue;
    const std::string_view nearest = muster::nearest_name(word.substr(0, word.find('=')), views);
    return nearest.empty() ? "" : absl::StrCat("; did you mean ", muster::av(nearest), "?");
  }
  return "";
}

int parse_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0)
    return app.exit(error, std::cout, std::cerr);  // --help, --version
  std::string command = "muster";
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) {
    chosen = chosen->get_subcommands().front();
    absl::StrAppend(&command, " ", chosen->get_name());
  }
  std::string message = absl::StrCat(error.what(), nearest_option(*chosen));
  if (message.find("(see ") == std::string::npos) {
    absl::StrAppend(&message, " (see ", command, " --help)");
  }
  return muster::cli::fail(absl::InvalidArgumentError(message));
}

int run(int argc, char** argv) {
  CLI::App app("", "muster");
  muster::cli::Action action;
  muster::cli::declare_all(app, action, argv);
  if (argc < 2) {
    std::cout << app.help();
    return muster::to_int(muster::ExitCode::kBadInput);
  }
  if (const std::string word = argv[1]; !word.starts_with("-") && !is_command(app, word)) {
    return muster::cli::fail(unknown_command(app, word));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return parse_error(app, error);
  }
  return action ? action() : muster::to_int(muster::ExitCode::kBadInput);
}

}  // namespace

int main(int argc, char** argv) {
  // gRPC's own log speaks of its insides; what matters comes back as a status.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write()
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return muster::cli::fail(absl::InternalError(error.what()));
  }
}

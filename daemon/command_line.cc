#include "daemon/command_line.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"

namespace muster::daemon {
namespace {

std::string nearest_of(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  return std::string(nearest_name(word, views));
}

// Returns the error for an unknown word. `nearest`: the closest known word; empty if none is close.
absl::Status unknown(const std::string& what, const std::string& path, const std::string& nearest) {
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", what,
                   nearest.empty() ? absl::StrCat("; ", path, " --help lists them")
                                   : absl::StrCat("; did you mean ", nearest, "?")));
}

absl::Status unknown_option(const CLI::App& command, const std::string& path,
                            const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  return unknown(absl::StrCat("option ", name), path, nearest_option(command, name));
}

// Returns whether the option was repeated. CLI11 reports a repeated option and an option without
// its value by the same error.
bool is_repeated(const CLI::App& command, const std::string& option) {
  const CLI::Option* found = command.get_option_no_throw(option);
  return found != nullptr && found->count() > 1;
}

}  // namespace

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return names;
}

const CLI::App& command_in_use(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

std::string nearest_option(const CLI::App& command, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  }
  return nearest_of(name, names);
}

absl::Status explain(const CLI::App& app, const CLI::ParseError& error) {
  std::string path = app.get_name();
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    absl::StrAppend(&path, " ", command->get_name());
  }
  const std::vector<const CLI::App*> below = commands_of(*command);
  std::vector<std::string> words = command->remaining();
  std::erase(words, "--");  // stands before the flags of other programs' lines
  if (!words.empty()) {
    if (words[0].starts_with("-")) return unknown_option(*command, path, words[0]);
    if (!below.empty()) return unknown_command(*command, path, words[0]);
    return absl::InvalidArgumentError(absl::StrCat(path, " takes no argument ", words[0],
                                                   " in this place (see ", path, " --help)"));
  }
  std::string message = error.what();
  if (error.get_name() == "ArgumentMismatch") {
    const std::string option = message.substr(0, message.find(':'));
    message =
        absl::StrCat(option, is_repeated(*command, option) ? " is given twice" : " needs a value");
  } else if (error.get_name() == "RequiredError" && !below.empty()) {
    message = absl::StrCat(path, " needs a command: ", absl::StrJoin(names_of(below), ", "));
  }
  if (message.find("(see ") == std::string::npos)
    absl::StrAppend(&message, " (see ", path, " --help)");
  return absl::InvalidArgumentError(message);
}

absl::Status unknown_command(const CLI::App& app, const std::string& path,
                             const std::string& word) {
  const std::string nearest = nearest_of(word, names_of(commands_of(app)));
  return unknown(absl::StrCat("command ", word.empty() ? "''" : word), path,
                 nearest.empty() ? "" : absl::StrCat(path, " ", nearest));
}

}  // namespace muster::daemon

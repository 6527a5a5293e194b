// Messages for mistakes on a program's command line. CLI11's own messages are written for
// programmers.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

namespace muster::daemon {

// Return the commands declared on `app`, in order, and their names.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands);

// Returns the innermost command on the command line: `app` itself, or a (nested) command of it.
const CLI::App& command_in_use(const CLI::App& app);

// Returns the option of `command` closest to `name` ("--stpes"); empty if no option is close.
std::string nearest_option(const CLI::App& command, const std::string& name);

// Returns InvalidArgument with the mistake and the correct form. `app`: the program's command line,
// which CLI11 failed to parse; its name is the program's name.
absl::Status explain(const CLI::App& app, const CLI::ParseError& error);

// Returns the error for `word`, which is not a command of `app`. `path`: the text typed before
// `word`.
absl::Status unknown_command(const CLI::App& app, const std::string& path, const std::string& word);

}  // namespace muster::daemon

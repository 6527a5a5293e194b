// Messages for mistakes on a program's command line; CLI11's own messages address programmers.
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

// Returns the option of `command` closest to `name` ("--stpes"); empty: none is close.
std::string nearest_option(const CLI::App& command, const std::string& name);

// Returns InvalidArgument with the mistake and the correct form. `app` failed to parse; its name is
// the program's.
absl::Status explain(const CLI::App& app, const CLI::ParseError& error);

// Returns the error for `word`, which is no command of `app`; `path` is the text typed before it.
absl::Status unknown_command(const CLI::App& app, const std::string& path, const std::string& word);

}  // namespace muster::daemon

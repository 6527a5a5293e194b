// How mistakes on a program's command line read: CLI11's own words are for programmers.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

namespace muster::daemon {

// The commands that were declared on `app`, in that order, and their names.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands);

// The innermost command that was given: `app` itself, or a command of it, or of that one.
const CLI::App& command_in_use(const CLI::App& app);

// The option of `command` that `name` ("--stpes") may mean; none: empty.
std::string nearest_option(const CLI::App& command, const std::string& name);

// What is wrong and what would be right, InvalidArgument. `app` is what failed to parse; its name is the program's.
absl::Status explain(const CLI::App& app, const CLI::ParseError& error);

// For `word` in the place of a command of `app`, which `path` calls.
absl::Status unknown_command(const CLI::App& app, const std::string& path, const std::string& word);

}  // namespace muster::daemon

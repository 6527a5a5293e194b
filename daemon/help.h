// The layout of every program's `--help`, and the declaration and validation of options; CLI11's
// own messages address programmers. Messages for mistakes are in command_line.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace muster::daemon {

// Sets up --help, with the default, the environment variable and "required" in the sentence after
// an option, and --version. Call before options and commands of `app` are declared: commands
// inherit it. `app`'s name is the program's.
void use_our_help(CLI::App& app);

// Validates a whole number within inclusive bounds: "… 'x' is not a whole number from 1 to 8". Use
// with transform(), so that the validated value is the stored one: CLI11 by itself reads 010 as 8.
CLI::Validator whole_number(int64_t least, int64_t most);
// Validates any number within inclusive bounds. Use with check().
CLI::Validator number(double least, double most);

// Adds an option with such a number: "--ranks N".
template <class Number>
CLI::Option* add_count(CLI::App& command, const char* names, Number& count, const std::string& help,
                       int64_t least, int64_t most) {
  return command.add_option(names, count, help)
      ->type_name("N")
      ->transform(whole_number(least, most));
}
// Adds a repeatable option with one value each: the words after it do not belong to it.
CLI::Option* add_list(CLI::App& command, const char* names, std::vector<std::string>& values,
                      const char* type, const std::string& help);

}  // namespace muster::daemon

// The layout of every program's `--help`, and the declaration and validation of options. CLI11's
// own help and messages are written for programmers. Messages for mistakes are in command_line.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace muster::daemon {

// Sets up --help and --version. --help shows an option's default, its environment variable and
// "required" in the sentence after the option. Call it before options and commands of `app` are
// declared, because commands inherit the help. The name of `app` is the program's name.
void use_our_help(CLI::App& app);

// Returns a validator for a whole number within inclusive bounds, with errors such as "… 'x' is not
// a whole number from 1 to 8". Use it with transform(), so that the validated value is the stored
// value: CLI11 by itself reads 010 as 8.
CLI::Validator whole_number(int64_t least, int64_t most);
// Returns a validator for any number within inclusive bounds. Use it with check().
CLI::Validator number(double least, double most);

// Adds an option with a whole number from `least` to `most`: "--ranks N".
template <class Number>
CLI::Option* add_count(CLI::App& command, const char* names, Number& count, const std::string& help,
                       int64_t least, int64_t most) {
  return command.add_option(names, count, help)
      ->type_name("N")
      ->transform(whole_number(least, most));
}
// Adds a repeatable option. Each use of the option takes exactly one value, so the following words
// do not belong to it.
CLI::Option* add_list(CLI::App& command, const char* names, std::vector<std::string>& values,
                      const char* type, const std::string& help);

}  // namespace muster::daemon

// How `--help` of every program reads, and how options are declared and their values judged: CLI11's own words are for programmers.
// command_line.h has the words for mistakes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace muster::daemon {

// --help, with the default, the environment variable and "required" in the sentence behind an option, and --version. Before options and commands of
// `app`, whose name is the program's, are declared: commands take it over.
void use_our_help(CLI::App& app);

// "… 'x' is not a whole number from 1 to 8". The bounds are inclusive. For transform(): what is judged is what is taken, where CLI11 by itself
// would read 010 as 8.
CLI::Validator whole_number(int64_t least, int64_t most);
// The same of any number. For check().
CLI::Validator number(double least, double most);

// An option whose value is such a number: "--ranks N".
template <class Number>
CLI::Option* add_count(CLI::App& command, const char* names, Number& count, const std::string& help,
                       int64_t least, int64_t most) {
  return command.add_option(names, count, help)
      ->type_name("N")
      ->transform(whole_number(least, most));
}
// One that may be repeated, each time with one value: the words behind that are others'.
CLI::Option* add_list(CLI::App& command, const char* names, std::vector<std::string>& values,
                      const char* type, const std::string& help);

}  // namespace muster::daemon

// How `muster --help` reads, and how options are declared and their values judged: CLI11's own words are for programmers. daemon/command_line.h has
// the words for mistakes.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace muster::cli {

// "--ranks N", with the default, the environment variable and "required" in the sentence behind it.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

// For check(): "… 'x' is not a whole number from 1 to 8". The bounds are inclusive.
CLI::Validator whole_number(int64_t least, int64_t most);
CLI::Validator number(double least, double most);

// An option whose value is such a number: "--ranks N".
template <class Number>
CLI::Option* add_count(CLI::App& command, const char* names, Number& count, const std::string& help,
                       int64_t least, int64_t most) {
  return command.add_option(names, count, help)->type_name("N")->check(whole_number(least, most));
}
// One that may be repeated, each time with one value: the words behind that are others'.
CLI::Option* add_list(CLI::App& command, const char* names, std::vector<std::string>& values,
                      const char* type, const std::string& help);

}  // namespace muster::cli

// How `muster --help` reads, and its values are judged: CLI11's own words are for programmers. daemon/command_line.h has
// the words for mistakes.
#pragma once

#include <string>

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

}  // namespace muster::cli

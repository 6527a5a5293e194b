// How `muster --help` and mistakes on the command line read: CLI11's own words are for programmers.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

namespace muster::cli {

// "--ranks N", with the default, the environment variable and "required" in the sentence behind it.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

// The commands that were declared on `app`, in that order, and their names.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands);

// What is wrong and what would be right, InvalidArgument. `app` is what failed to parse.
absl::Status explain(const CLI::App& app, const CLI::ParseError& error);

// For `word` in the place of a command of `app`, which `path` calls.
absl::Status unknown_command(const CLI::App& app, const std::string& path, const std::string& word);

// For check(): "… 'x' is not a whole number from 1 to 8". The bounds are inclusive.
CLI::Validator whole_number(int64_t least, int64_t most);
CLI::Validator number(double least, double most);

}  // namespace muster::cli

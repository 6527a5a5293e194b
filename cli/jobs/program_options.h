// Options that set a number of a program's job, one row each in the source. A config has keys
// instead.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// One option.
struct ProgramOption {
  const char* flag;
  const char* type_name;
  // The valid numbers, both bounds included.
  int64_t min;
  int64_t max;
  const char* help;
  // Follows "FLAG needs a program behind --; " in the error for a config.
  const char* for_config;
  void (*set)(v1::JobSpec& job, int64_t value);
};

// Returns all options.
std::span<const ProgramOption> program_options();

// The options that the user gave. A value.
class ProgramOptions {
 public:
  // Declares the options. Requires that this object outlives the parsing.
  void declare(CLI::App& command);
  // Sets the fields of the given options.
  void apply(v1::JobSpec& job) const;
  // Returns the words that give the same options to another command.
  std::vector<std::string> words() const;
  // InvalidArgument names a given option and what a config has instead.
  absl::Status check_none_given() const;

 private:
  // By flag.
  std::map<std::string, int64_t> given_;
};

}  // namespace muster::cli

// Command-line options for jobs that run a user's own program. Each sets one number of the JobSpec.
// The source file has a table with a row per option. Jobs of the trainer use config keys instead.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// A row of the table.
struct ProgramOptionRow {
  const char* flag;
  const char* type_name;
  // The valid numbers, both bounds included.
  int64_t min;
  int64_t max;
  const char* help;
  // The alternative in a job of the trainer. It ends the error "FLAG needs a program behind --; …".
  const char* for_config;
  void (*set)(v1::JobSpec& job, int64_t value);
};

// Returns the rows of the table.
std::span<const ProgramOptionRow> program_options();

// Returns the words of the program that arrange_pasted_command() has passed on as one text, or
// InvalidArgument.
absl::StatusOr<std::vector<std::string>> words_of_program(const std::string& program);

// The options that the user has given, with their values.
class ProgramOptions {
 public:
  // Declares the options. Requires that this object outlives the parsing.
  void declare(CLI::App& command);
  // Sets the fields of the given options.
  void apply(v1::JobSpec& job) const;
  // Returns the words that give the same options to another command.
  std::vector<std::string> words() const;
  // Returns InvalidArgument, with the option's name and its alternative, if an option was given.
  // Called for jobs of the trainer.
  absl::Status check_none_given() const;

 private:
  // values by flag
  std::map<std::string, int64_t> given_;
};

}  // namespace muster::cli

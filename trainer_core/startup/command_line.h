// Parses the command line of muster-trainer: `COMMAND --name value …`.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The names of the options of a command.
struct CommandOptions {
  std::set<std::string> values;    // --name VALUE or --name=VALUE
  std::set<std::string> switches;  // --name
};

// A parsed command line.
class CommandLine {
 public:
  // Parses the arguments after the command. Returns InvalidArgument for an unknown option (with the
  // most similar name), a missing value, or an option that is given twice.
  static absl::StatusOr<CommandLine> parse(std::span<const std::string_view> arguments,
                                           const CommandOptions& options);

  bool has(const std::string& name) const { return given_.contains(name); }
  // Returns the value of an option, or `otherwise` if it is not given.
  std::string text(const std::string& name, const std::string& otherwise = "") const;
  // Return the value of an option, or `otherwise` if it is not given. Return InvalidArgument with
  // the option and its value if the value is not a number in [min, max].
  absl::StatusOr<int64_t> integer(const std::string& name, int64_t otherwise, int64_t min,
                                  int64_t max) const;
  absl::StatusOr<double> number(const std::string& name, double otherwise, double min,
                                double max) const;

 private:
  std::map<std::string, std::string> given_;
};

}  // namespace muster::trainer

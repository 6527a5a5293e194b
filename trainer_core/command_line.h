// The command line of muster-trainer: `COMMAND --name value …`.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The options of a command.
struct CommandOptions {
  std::set<std::string> values;    // --name VALUE or --name=VALUE
  std::set<std::string> switches;  // --name
};

class CommandLine {
 public:
  // Returns InvalidArgument for an unknown option (names the nearest one), a missing value, or an
  // option that is given twice.
  static absl::StatusOr<CommandLine> parse(std::span<const std::string_view> arguments,
                                           const CommandOptions& options);

  bool has(const std::string& name) const { return given_.contains(name); }
  std::string text(const std::string& name, const std::string& otherwise = "") const;
  // InvalidArgument names the option and its value.
  absl::StatusOr<int64_t> integer(const std::string& name, int64_t otherwise, int64_t min,
                                  int64_t max) const;
  absl::StatusOr<double> number(const std::string& name, double otherwise, double min,
                                double max) const;

 private:
  std::map<std::string, std::string> given_;
};

}  // namespace muster::trainer

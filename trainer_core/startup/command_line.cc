#include "trainer_core/startup/command_line.h"

#include <charconv>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"

namespace muster::trainer {
namespace {

absl::Status unknown_option(const std::string& name, const CommandOptions& options) {
  std::vector<std::string_view> known(options.values.begin(), options.values.end());
  known.insert(known.end(), options.switches.begin(), options.switches.end());
  const std::string_view nearest = nearest_name(name, known);
  return absl::InvalidArgumentError(
      nearest.empty()
          ? absl::StrCat("unknown option --", name)
          : absl::StrCat("unknown option --", name, "; did you mean --", av(nearest), "?"));
}

}  // namespace

absl::StatusOr<CommandLine> CommandLine::parse(std::span<const std::string_view> arguments,
                                               const CommandOptions& options) {
  CommandLine line;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view argument = arguments[i];
    if (!argument.starts_with("--")) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument \"", av(argument), "\"; options begin with --"));
    }
    argument.remove_prefix(2);
    const size_t equals = argument.find('=');
    const std::string name(argument.substr(0, equals));
    std::string value;
    if (options.values.contains(name)) {
      if (equals != std::string_view::npos) {
        value = argument.substr(equals + 1);
      } else if (i + 1 < arguments.size()) {
        value = arguments[++i];
      } else {
        return absl::InvalidArgumentError(absl::StrCat("option --", name, " needs a value"));
      }
    } else if (!options.switches.contains(name) || equals != std::string_view::npos) {
      return unknown_option(name, options);
    }
    if (!line.given_.emplace(name, value).second) {
      return absl::InvalidArgumentError(absl::StrCat("option --", name, " is given twice"));
    }
  }
  return line;
}

std::string CommandLine::text(const std::string& name, const std::string& otherwise) const {
  const auto found = given_.find(name);
  return found != given_.end() ? found->second : otherwise;
}

absl::StatusOr<int64_t> CommandLine::integer(const std::string& name, int64_t otherwise,
                                             int64_t min, int64_t max) const {
  if (!has(name)) return otherwise;
  int64_t value = 0;
  if (!absl::SimpleAtoi(text(name), &value) || value < min || value > max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", name, " is \"", text(name), "\"; it must be a whole number from ", min, " to ", max));
  }
  return value;
}

absl::StatusOr<double> CommandLine::number(const std::string& name, double otherwise, double min,
                                           double max) const {
  if (!has(name)) return otherwise;
  double value = 0;
  if (!absl::SimpleAtod(text(name), &value) || !(value >= min && value <= max)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", name, " is \"", text(name), "\"; it must be a number from ", min, " to ", max));
  }
  return value;
}

}  // namespace muster::trainer

// Environment variables that users of MaxText, Pax and their Slurm scripts set, the meaning of
// these variables in Muster, and the command lines that they affect. All functions are pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/dialects/dialect.h"

namespace muster::jobspec {

// A row of `muster config show --variables`.
struct Variable {
  std::string_view name;     // name; "M_<KEY>" and "NCCL_*" stand for several variables
  std::string_view source;   // the program or script that defines it
  std::string_view meaning;  // the config key that it sets, or the reason why it has no effect
  std::string_view read_by;  // command lines and scripts that read the variable
  // The key or option with this meaning for lines that do not read the variable; "" if there is
  // none, or if all lines read it.
  std::string_view instead;
};

// Returns the rows.
std::span<const Variable> variables();

// Returns NAME=VALUE for each variable in `environment` that Pax's scripts would read. Ignores
// empty values, and variables that `words` sets.
std::vector<std::string> exported_words(const Environment& environment,
                                        const std::vector<std::string>& words);

// Returns a warning for each variable in `environment` that has no effect on a command line of
// `dialect`. The warning names the key that has its meaning there, or the reason. Ignores empty
// values, and values such as ENABLE_FP8=0 that switch off what is off without them.
std::vector<std::string> exported_without_effect(const Environment& environment, Dialect dialect);

// Returns the error for NAME=VALUE on a command line that does not read this variable. The error
// names the key that has its meaning there. Returns OK if the table has no row `name`.
absl::Status check_no_variable(const std::string& name, const std::string& value);

}  // namespace muster::jobspec

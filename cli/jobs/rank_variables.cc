#include "cli/jobs/rank_variables.h"

#include <cstdlib>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/variable_name.h"
#include "jobspec/files/value.h"

namespace muster::cli {

absl::StatusOr<std::map<std::string, std::string>> rank_variables(
    const std::vector<std::string>& options) {
  std::map<std::string, std::string> variables;
  for (const std::string& text : options) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (!is_variable_name(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--env ", name, equals == std::string::npos ? "" : "=…", ": ",
                       name.empty() ? "expected NAME or NAME=VALUE" : av(kVariableNameRule)));
    }
    if (equals != std::string::npos) {
      variables[name] = text.substr(equals + 1);
    } else if (const char* value = std::getenv(name.c_str()); value != nullptr) {
      variables[name] = value;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("--env ", name, ": your environment has no ",
                                                     name, "; set it, or give ", name, "=VALUE"));
    }
    // The value may be a secret, so that the error omits it.
    if (!jobspec::is_utf8(variables[name]))
      return absl::InvalidArgumentError(
          absl::StrCat("--env ", name, "=…: the value must be UTF-8"));
  }
  return variables;
}

}  // namespace muster::cli

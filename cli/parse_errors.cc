#include "cli/parse_errors.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include "cli/jobs/job_arguments.h"
#include "common/files/find_program.h"
#include "common/text/nearest.h"
#include "daemon/command_line.h"
#include "jobspec/settings/keys.h"

namespace muster::cli {
namespace {

// Returns the value of `option`, which may be the next word.
std::string value_of(const std::string& option, const std::vector<std::string>& words) {
  const size_t equals = option.find('=');
  if (equals != std::string::npos) return option.substr(equals + 1);
  const auto found = std::find(words.begin(), words.end(), option);
  if (found == words.end() || found + 1 == words.end()) return "…";
  const std::string& next = *(found + 1);
  return next.starts_with("--") || next.find('=') != std::string::npos ? "…" : next;
}

// Returns the config key that an unknown option of `command` may mean; empty: none.
std::string suggest_key(const CLI::App& command, const std::string& option) {
  if (command.get_option_no_throw(kOverrides) == nullptr) return "";
  const size_t name = option.find_first_not_of('-');
  if (name == std::string::npos || name == 0 || name > 2) return "";
  const std::string key = absl::StrReplaceAll(option.substr(name), {{"-", "_"}});
  if (jobspec::find_key(key) != nullptr) return key;
  if (!daemon::nearest_option(command, option).empty()) return "";
  std::vector<std::string_view> keys;
  for (const jobspec::Key& known : jobspec::all_keys()) keys.push_back(known.name);
  return std::string(nearest_name(key, keys));
}

// Returns the first word before `option` that is a program in PATH, if `command` runs programs;
// empty: none.
std::string program_before(const CLI::App& command, const std::string& option,
                           const std::vector<std::string>& words) {
  if (command.get_option_no_throw(kProgram) == nullptr) return "";
  const auto begin = std::find(words.begin(), words.end(), command.get_name());
  const auto end = std::find(begin, words.end(), option);
  const auto program = std::find_if(begin == end ? end : begin + 1, end, [](const auto& word) {
    return word.find('/') == std::string::npos && find_program_in_path(word).ok();
  });
  return program == end ? "" : *program;
}

}  // namespace

absl::Status explain(const CLI::App& app, const CLI::ParseError& error,
                     const std::vector<std::string>& words) {
  const CLI::App& command = daemon::command_in_use(app);
  if (const std::vector<std::string> left = command.remaining(); !left.empty()) {
    const std::string option = left[0].substr(0, left[0].find('='));
    if (const std::string key = suggest_key(command, option); !key.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown option ", option, "; did you mean ",
                                                     key, "=", value_of(left[0], words),
                                                     "? Config keys are given without dashes"));
    }
    if (const std::string program = program_before(command, left[0], words); !program.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(option, " follows the program ", program,
                                                     "; give programs behind --: muster ",
                                                     command.get_name(), " -- ", program, " …"));
    }
  }
  return daemon::explain(app, error);
}

}  // namespace muster::cli

#include "jobspec/launcher.h"

#include <algorithm>
#include <functional>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/absl_view.h"
#include "common/variable_name.h"
#include "jobspec/flag_table.h"
#include "jobspec/value.h"

namespace muster::jobspec {
namespace {

// What may stand behind python3 [-m].
struct Launcher {
  std::string_view module;
  std::string_view script;  // the end of its path
};
constexpr Launcher kLaunchers[] = {
    {"paxml.main", "paxml/main.py"},
    {"axlearn.common.launch_trainer_main", "axlearn/common/launch_trainer_main.py"},
    {"MaxText.train", "MaxText/train.py"},
    {"maxtext.trainers.pre_train.train", "maxtext/trainers/pre_train/train.py"},
};

bool is_python(absl::string_view word) {
  word = word.substr(word.rfind('/') + 1);
  return absl::ConsumePrefix(&word, "python") &&
         word.find_first_not_of("0123456789.") == absl::string_view::npos;
}

// NAME=VALUE as a shell takes it in front of a command.
bool is_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && is_variable_name(word.substr(0, equals));
}

bool is_launcher(bool is_module, const std::string& name) {
  return std::any_of(std::begin(kLaunchers), std::end(kLaunchers), [&](const Launcher& launcher) {
    return is_module ? name == launcher.module
                     : name == launcher.script ||
                           absl::EndsWith(name, absl::StrCat("/", av(launcher.script)));
  });
}

// What Pax reads from its environment means something here, too: ENABLE_FP8=1 is a flag like any other.
void give_back_variables(std::vector<std::string>& environment, std::vector<std::string>& words) {
  const auto is_pax_variable = [](const std::string& assignment) {
    const std::string name = assignment.substr(0, assignment.find('='));
    return std::any_of(pax_variables().begin(), pax_variables().end(),
                       [&](const Flag& flag) { return flag.name == name; });
  };
  const auto rest =
      std::stable_partition(environment.begin(), environment.end(), std::not_fn(is_pax_variable));
  words.insert(words.end(), rest, environment.end());
  environment.erase(rest, environment.end());
}

}  // namespace

absl::StatusOr<std::vector<std::string>> skip_launcher(std::vector<std::string>& words) {
  size_t at = 0;
  while (at < words.size() && is_assignment(words[at])) ++at;
  if (at == words.size() || !is_python(words[at])) return std::vector<std::string>();
  const auto begin = words.begin();
  std::vector<std::string> environment(begin, begin + static_cast<std::ptrdiff_t>(at));
  for (const std::string& assignment : environment) {
    if (!absl::StartsWith(assignment, "M_")) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        show(assignment), ": a config's variable belongs in front of muster, or is a key=value"));
  }
  const size_t python = at++;
  while (at < words.size() && absl::StartsWith(words[at], "-") && words[at] != "-m") ++at;
  const bool is_module = at < words.size() && words[at] == "-m";
  if (is_module) ++at;
  if (at >= words.size() || !is_launcher(is_module, words[at])) {
    return absl::InvalidArgumentError(absl::StrCat(
        words[python], " ", is_module ? "-m " : "", at < words.size() ? show(words[at]) : "",
        ": this version takes the command lines of MaxText/train.py, paxml.main and "
        "axlearn.common.launch_trainer_main; other programs are not part of it"));
  }
  const bool is_pax =
      absl::StartsWith(words[at], "paxml") || absl::EndsWith(words[at], "paxml/main.py");
  words.erase(begin, begin + static_cast<std::ptrdiff_t>(at) + 1);
  if (is_pax) give_back_variables(environment, words);
  return environment;
}

}  // namespace muster::jobspec

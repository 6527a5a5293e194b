#include "jobspec/launcher.h"

#include <algorithm>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/absl_view.h"
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

bool is_launcher(bool is_module, const std::string& name) {
  return std::any_of(std::begin(kLaunchers), std::end(kLaunchers), [&](const Launcher& launcher) {
    return is_module ? name == launcher.module
                     : name == launcher.script ||
                           absl::EndsWith(name, absl::StrCat("/", av(launcher.script)));
  });
}

}  // namespace

absl::StatusOr<bool> skip_launcher(std::vector<std::string>& words) {
  if (words.empty() || !is_python(words.front())) return false;
  size_t at = 1;
  while (at < words.size() && absl::StartsWith(words[at], "-") && words[at] != "-m") ++at;
  const bool is_module = at < words.size() && words[at] == "-m";
  if (is_module) ++at;
  if (at >= words.size() || !is_launcher(is_module, words[at])) {
    return absl::InvalidArgumentError(absl::StrCat(
        words.front(), " ", is_module ? "-m " : "", at < words.size() ? show(words[at]) : "",
        ": this version takes the command lines of MaxText/train.py, paxml.main and "
        "axlearn.common.launch_trainer_main; other programs are not part of it"));
  }
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  return true;
}

}  // namespace muster::jobspec

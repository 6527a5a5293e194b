#include "jobspec/dialects/launcher.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "common/text/variable_name.h"
#include "jobspec/dialects/flag_table.h"
#include "jobspec/files/value.h"

namespace muster::jobspec {
namespace {

// A program after python3 [-m].
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

// Programs that users put in front of python, or use instead of it. The lines of a script are not
// visible here.
constexpr std::string_view kStarters[] = {
    "apptainer", "bash",   "docker", "enroot",   "env",    "exec",   "export", "kubectl",
    "mpiexec",   "mpirun", "nohup",  "podman",   "salloc", "sbatch", "sh",     "singularity",
    "source",    "srun",   "sudo",   "torchrun", "xpk",    "zsh"};

// A program without its interpreter, as users type it behind other launchers.
bool is_python_file(absl::string_view word) {
  return absl::EndsWith(word, ".py") && !absl::StrContains(word, "=") &&
         !absl::StartsWith(word, "-");
}

bool is_starter(absl::string_view word) {
  word = word.substr(word.rfind('/') + 1);
  return absl::EndsWith(word, ".sh") ||
         std::find(std::begin(kStarters), std::end(kStarters), sv(word)) != std::end(kStarters);
}

// Scripts of JAX-Toolbox and MaxText that Muster has, too: they call `muster run` themselves.
constexpr std::string_view kOwnScripts[] = {"download_boolq.py",
                                            "download_dataset.sh",
                                            "download_lambada.py",
                                            "download_the_pile.py",
                                            "example_slurm.sub",
                                            "example_slurm_llama.sub",
                                            "example_slurm_pile.sub",
                                            "launch_base_config.sub",
                                            "launch_base_script.sub",
                                            "multinode.py",
                                            "run_base_config_multinode.sh",
                                            "run_lambada_singlenode.sh",
                                            "run_llama_boolq.sh",
                                            "run_pile_multinode.sh",
                                            "run_pile_singlenode.sh"};

// Returns the line from the script on, if it is one of Muster's own: "bash run_llama_boolq.sh …".
std::optional<std::string> own_script_line(const std::vector<std::string>& words, size_t at) {
  size_t script = at;
  while (script < words.size() &&
         (script == at ? is_starter(words[at]) || is_python(words[at])
                       : absl::StartsWith(words[script], "-")) &&
         !absl::EndsWith(words[script], ".sh"))
    ++script;
  if (script == words.size()) return std::nullopt;
  const absl::string_view name =
      absl::string_view(words[script]).substr(words[script].rfind('/') + 1);
  if (std::ranges::find(kOwnScripts, sv(name)) == std::end(kOwnScripts)) return std::nullopt;
  const std::vector<std::string> line(words.begin() + static_cast<std::ptrdiff_t>(at),
                                      words.begin() + static_cast<std::ptrdiff_t>(script) + 1);
  const std::string starter = script > at                    ? ""
                              : absl::EndsWith(name, ".py")  ? "python3 "
                              : absl::EndsWith(name, ".sub") ? "sbatch "
                                                             : "bash ";
  return absl::StrCat(starter, absl::StrJoin(line, " "), script + 1 < words.size() ? " …" : "");
}

bool is_launcher(bool is_module, const std::string& name) {
  return std::any_of(std::begin(kLaunchers), std::end(kLaunchers), [&](const Launcher& launcher) {
    return is_module ? name == launcher.module
                     : name == launcher.script ||
                           absl::EndsWith(name, absl::StrCat("/", av(launcher.script)));
  });
}

// Returns variables that Pax reads from its environment to the words: ENABLE_FP8=1 is a flag like
// any other. They go in front, because flags override them.
void return_variables(std::vector<std::string>& environment, std::vector<std::string>& words) {
  const auto is_pax_variable = [](const std::string& assignment) {
    const std::string name = assignment.substr(0, assignment.find('='));
    return std::any_of(pax_variables().begin(), pax_variables().end(),
                       [&](const Flag& flag) { return flag.name == name; });
  };
  const auto rest =
      std::stable_partition(environment.begin(), environment.end(), std::not_fn(is_pax_variable));
  words.insert(words.begin(), rest, environment.end());
  environment.erase(rest, environment.end());
}

// Skips python's own options: -u, -X dev, -W ignore.
size_t skip_python_options(const std::vector<std::string>& words, size_t at) {
  while (at < words.size() && absl::StartsWith(words[at], "-") && words[at] != "-m")
    at += words[at] == "-W" || words[at] == "-X" ? 2 : 1;
  return at;
}

}  // namespace

bool is_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && is_variable_name(word.substr(0, equals));
}

bool is_flag_without_effect(const std::string& word) {
  return absl::StartsWith(word, "--") && !why_word_without_effect(word).empty();
}

absl::StatusOr<LauncherPrefix> skip_launcher(std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!absl::StripAsciiWhitespace(word).empty()) continue;
    // The dialects name an empty path of a config, and a flag may have an empty value.
    const bool is_value =
        i > 0 && absl::StartsWith(words[i - 1], "--") && !absl::StrContains(words[i - 1], "=");
    if (word.empty() && (i == 0 || is_value)) continue;
    return absl::InvalidArgumentError(
        word.empty() ? "an argument of the line is empty: perhaps a variable in quotes is not set"
                     : "an argument of the line is a blank: remove blanks behind the backslash at "
                       "the end of a line");
  }
  // Flags for XLA in front of the program go behind its words, where the dialects warn about them.
  const auto prefix = std::ranges::find_if_not(words, [](const std::string& word) {
    return is_assignment(word) || is_flag_without_effect(word);
  });
  const std::vector<std::string> flags(
      std::stable_partition(words.begin(), prefix, std::not_fn(is_flag_without_effect)), prefix);
  words.erase(prefix - std::ssize(flags), prefix);
  words.insert(words.end(), flags.begin(), flags.end());
  size_t at = 0;
  while (at < words.size() && is_assignment(words[at])) ++at;
  if (const auto line = own_script_line(words, at)) {
    return absl::InvalidArgumentError(absl::StrCat(
        show(words[at]), ": this script calls muster itself; start it without muster run: ",
        absl::StrJoin(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at), " "),
        at > 0 ? " " : "", *line, "; Muster's scripts are in scripts/ and slurm/"));
  }
  if (at < words.size() && is_starter(words[at])) {
    return absl::InvalidArgumentError(
        absl::StrCat(show(words[at]),
                     ": this is a shell, a script or a launcher; paste the python3 line in it, or "
                     "CONFIG=… alone. Put your own program behind --: muster run -- ",
                     words[at], " …"));
  }
  if (at < words.size() && is_python_file(words[at]) && !is_launcher(false, words[at])) {
    return absl::InvalidArgumentError(
        absl::StrCat(show(words[at]),
                     ": expected a config; put your own program behind --: muster run -- python3 ",
                     words[at], at + 1 < words.size() ? " …" : ""));
  }
  if (at < words.size() && is_launcher(false, words[at])) {
    words.insert(words.begin() + static_cast<std::ptrdiff_t>(at), "python3");
    return skip_launcher(words);
  }
  if (at == words.size() || !is_python(words[at])) return LauncherPrefix();
  const auto begin = words.begin();
  LauncherPrefix launch{.has_program = true,
                        .environment = {begin, begin + static_cast<std::ptrdiff_t>(at)}};
  const std::string python = words[at];
  at = skip_python_options(words, at + 1);
  const bool is_module = at < words.size() && words[at] == "-m";
  if (is_module) ++at;
  if (at >= words.size() || !is_launcher(is_module, words[at])) {
    return absl::InvalidArgumentError(
        absl::StrCat(python, " ", is_module ? "-m " : "", at < words.size() ? show(words[at]) : "",
                     ": only command lines of MaxText/train.py, paxml.main and "
                     "axlearn.common.launch_trainer_main are accepted as configs; put your own "
                     "program behind --: muster run -- ",
                     python, " …"));
  }
  const bool is_pax =
      absl::StartsWith(words[at], "paxml") || absl::EndsWith(words[at], "paxml/main.py");
  words.erase(begin, begin + static_cast<std::ptrdiff_t>(at) + 1);
  if (is_pax) return_variables(launch.environment, words);
  return launch;
}

std::string_view why_without_effect(std::string_view variable) {
  if (variable.starts_with("XLA_") || variable == "BASE_XLA_FLAGS") return "there is no XLA here";
  if (variable == "LIBTPU_INIT_ARGS") return "there are no TPUs here";
  if (variable.starts_with("NVTE_")) return "there is no Transformer Engine here";
  return "";
}

std::string_view why_word_without_effect(const std::string& word) {
  for (const char* prefix : {"--xla_", "--noxla_", "--set_xla_"}) {
    if (absl::StartsWith(word, prefix)) return why_without_effect("XLA_FLAGS");
  }
  const size_t equals = word.find('=');
  return equals == std::string::npos ? "" : why_without_effect(word.substr(0, equals));
}

namespace {

// Returns whether the word behind "--xla_gpu_graph_level" is its value: a number or a switch.
bool is_flag_value(const std::string& word) {
  double number = 0;
  const std::string lower = absl::AsciiStrToLower(word);
  return lower == "true" || lower == "false" || absl::SimpleAtod(word, &number);
}

}  // namespace

bool is_of_ranks(const std::string& word) {
  return absl::StartsWith(word, "NCCL_") && is_assignment(word);
}

std::vector<std::string> remove_without_effect(std::vector<std::string>& words) {
  struct Reason {
    std::string first;
    size_t words = 0;
  };
  std::map<std::string_view, Reason> reasons;
  std::vector<std::string> others;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view why = why_word_without_effect(words[i]);
    if (why.empty()) {
      others.push_back(words[i]);
      continue;
    }
    Reason& reason = reasons[why];
    if (reason.words++ == 0) reason.first = words[i];
    const bool is_flag_alone = words[i].find('=') == std::string::npos;
    if (is_flag_alone && i + 1 < words.size() && is_flag_value(words[i + 1])) ++i;
  }
  words = std::move(others);
  std::vector<std::string> warnings;
  for (const auto& [why, reason] : reasons) {
    warnings.push_back(absl::StrCat(
        show(reason.first),
        reason.words == 1 ? " has" : absl::StrCat(" and ", reason.words - 1, " more have"),
        " no effect: ", av(why)));
  }
  return warnings;
}

}  // namespace muster::jobspec

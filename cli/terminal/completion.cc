// muster completion: scripts for bash, zsh and fish, generated from the declared commands and the
// table of keys, and the values that the scripts request.
#include <unistd.h>

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>

#include "cli/command.h"
#include "cli/terminal/completion_scripts.h"
#include "cli/terminal/completion_values.h"
#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "daemon/command_line.h"
#include "jobspec/settings/keys.h"

namespace muster::cli {
namespace {

// Bounds the time for which a shell waits for values.
constexpr unsigned kCompletionSecondsMax = 3;

struct CompletionOptions {
  std::string shell;
  std::string line;  // the line up to the cursor, whose values are requested; empty: the script
  const CLI::App* app = nullptr;  // owned by main()
};

// Returns the options of a command and its subcommands (`config show`), each name once.
std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  std::vector<const CLI::Option*> options;
  const auto add = [&](const CLI::Option* option) {
    if (option->get_group().empty()) return;  // hidden
    const bool is_known = std::any_of(
        options.begin(), options.end(),
        [&](const CLI::Option* other) { return other->get_name() == option->get_name(); });
    if (!is_known) options.push_back(option);
  };
  for (const CLI::App* below : daemon::commands_of(command)) {
    for (const CLI::Option* option : options_of(*below)) add(option);
  }
  for (const CLI::Option* option : command.get_options()) add(option);
  return options;
}

std::string keys() {
  std::string text;
  for (const jobspec::Key& key : jobspec::all_keys()) absl::StrAppend(&text, av(key.name), "= ");
  return text;
}

// Returns one `case` branch per command.
std::string option_cases(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : daemon::commands_of(app)) {
    std::vector<std::string> words = daemon::names_of(daemon::commands_of(*command));
    if (command->get_name() == "completion") words = {"bash", "zsh", "fish"};
    for (const CLI::Option* option : options_of(*command)) {
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
      for (const std::string& name : option->get_snames()) words.push_back("-" + name);
    }
    absl::StrAppend(&text, "    ", command->get_name(), ") choices=\"", absl::StrJoin(words, " "),
                    "\" ;;\n");
  }
  return text;
}

// Returns whether an argument of the command is a job or a node.
bool has_listed_argument(const CLI::App& command) {
  const auto options = command.get_options();
  return std::any_of(options.begin(), options.end(), [](const CLI::Option* option) {
    return option->get_positional() &&
           (option->get_type_name() == "JOB" || option->get_type_name() == "NODE");
  });
}

// Returns the commands with such an argument, with their groups: "cancel", "node exclude".
std::vector<std::string> commands_with_values(const CLI::App& app, const std::string& words = "") {
  std::vector<std::string> found;
  for (const CLI::App* command : daemon::commands_of(app)) {
    const std::string path = absl::StrCat(words, words.empty() ? "" : " ", command->get_name());
    if (has_listed_argument(*command)) found.push_back(path);
    for (std::string& below : commands_with_values(*command, path))
      found.push_back(std::move(below));
  }
  return found;
}

std::string fill(const char* script, const CLI::App& app) {
  return absl::StrReplaceAll(
      script, {{"@COMMANDS@", absl::StrJoin(daemon::names_of(daemon::commands_of(app)), " ")},
               {"@CASES@", option_cases(app)},
               {"@KEYS@", keys()}});
}

std::string fish_quoted(std::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(av(text), {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string fish(const CLI::App& app) {
  std::string text = kFishFunctions;
  for (const CLI::App* command : daemon::commands_of(app)) {
    const std::string& name = command->get_name();
    const std::string begin =
        absl::StrCat("complete -c muster -n '__fish_seen_subcommand_from ", name, "' ");
    absl::StrAppend(&text, "complete -c muster -f -n __fish_use_subcommand -a ", name, " -d ",
                    fish_quoted(command->get_description()), "\n");
    for (const CLI::Option* option : options_of(*command)) {
      for (const std::string& letter : option->get_snames())
        absl::StrAppend(&text, begin, "-s ", letter, "\n");
      for (const std::string& word : option->get_lnames())
        absl::StrAppend(&text, begin, "-l ", word,
                        option->get_items_expected_max() > 0 ? " -r" : "", " -d ",
                        fish_quoted(option->get_description()), "\n");
    }
    for (const CLI::App* below : daemon::commands_of(*command))
      absl::StrAppend(&text, begin, "-a ", below->get_name(), " -d ",
                      fish_quoted(below->get_description()), "\n");
  }
  for (const std::string& words : commands_with_values(app)) {
    // After the last word of "node exclude".
    std::string seen;
    for (const auto word : absl::StrSplit(words, ' '))
      absl::StrAppend(&seen, seen.empty() ? "" : "; and ", "__fish_seen_subcommand_from ", word);
    absl::StrAppend(&text, "complete -c muster -f -n '", seen, "' -a '(__muster_values)'\n");
  }
  absl::StrAppend(
      &text,
      "complete -c muster -f -n 'string match -q -- \"*=*\" (commandline -ct)' -a "
      "'(__muster_key_values)'\n",
      "complete -c muster -n '__fish_seen_subcommand_from run submit update decode config' -a ",
      fish_quoted(keys()),
      "\ncomplete -c muster -f -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n");
  return text;
}

int completion(const CompletionOptions& options) {
  if (!options.line.empty()) {
    // A file system that hangs ends only with the process.
    alarm(kCompletionSecondsMax);
    const Completion found = complete(*options.app, options.line);
    std::string text = absl::StrCat(found.kind, "\n");
    for (const auto& [value, description] : found.values)
      absl::StrAppend(&text, value, description.empty() ? "" : "\t", description, "\n");
    return print_result(text);
  }
  return print_result(options.shell == "bash"  ? fill(kBashScript, *options.app)
                      : options.shell == "zsh" ? fill(kZshScript, *options.app)
                                               : fish(*options.app));
}

}  // namespace

void declare_completion(CLI::App& app, Action& action) {
  auto options = std::make_shared<CompletionOptions>();
  options->app = &app;
  CLI::App* command = app.add_subcommand("completion", "Print a shell's completion script");
  CLI::Option* shell = command->add_option("shell", options->shell, "The shell");
  shell->required()->type_name("bash|zsh|fish");
  shell->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
  // For the scripts.
  const auto take_line = [options, shell](const std::string& line) {
    options->line = line;
    shell->required(false);
  };
  command->add_option_function<std::string>("--line", take_line)->group("")->trigger_on_parse();
  command->footer(
      "Examples:\n"
      "  eval \"$(muster completion bash)\"                  # in ~/.bashrc\n"
      "  eval \"$(muster completion zsh)\"                   # in ~/.zshrc\n"
      "  muster completion fish | source                   # in ~/.config/fish/config.fish");
  on_call(*command, action, options, completion);
}

}  // namespace muster::cli

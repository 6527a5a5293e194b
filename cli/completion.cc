// muster completion: scripts for bash, zsh and fish, made from the declared commands and the table of keys.
#include <unistd.h>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>

#include "cli/command.h"
#include "cli/completion_scripts.h"
#include "cli/terminal.h"
#include "common/absl_view.h"
#include "jobspec/keys.h"

namespace muster::cli {
namespace {

struct CompletionOptions {
  std::string shell;
  const CLI::App* app = nullptr;  // lives in main()
};

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string keys() {
  std::string text;
  for (const jobspec::Key& key : jobspec::all_keys()) absl::StrAppend(&text, av(key.name), "= ");
  return text;
}

// One `case` branch for each command.
std::string option_cases(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    std::vector<std::string> words = options_of(*command);
    for (const std::string& name : commands_of(*command)) words.push_back(name);
    if (command->get_name() == "completion") words = {"bash", "zsh", "fish"};
    absl::StrAppend(&text, "    ", command->get_name(), ") words=\"", absl::StrJoin(words, " "),
                    "\" ;;\n");
  }
  return text;
}

std::string fill(const char* script, const CLI::App& app) {
  return absl::StrReplaceAll(script, {{"@COMMANDS@", absl::StrJoin(commands_of(app), " ")},
                                      {"@CASES@", option_cases(app)},
                                      {"@KEYS@", keys()}});
}

std::string fish_quoted(std::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(av(text), {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string fish(const CLI::App& app) {
  std::string text = "# fish completion for muster: muster completion fish | source\n";
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    absl::StrAppend(&text, "complete -c muster -f -n __fish_use_subcommand -a ", name, " -d ",
                    fish_quoted(command->get_description()), "\n");
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_lnames().empty()) continue;
      absl::StrAppend(&text, "complete -c muster -n '__fish_seen_subcommand_from ", name, "' -l ",
                      option->get_lnames()[0], option->get_items_expected_max() > 0 ? " -r" : "",
                      " -d ", fish_quoted(option->get_description()), "\n");
    }
  }
  absl::StrAppend(
      &text, "complete -c muster -n '__fish_seen_subcommand_from run submit decode config' -a ",
      fish_quoted(keys()),
      "\ncomplete -c muster -f -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n");
  return text;
}

int completion(const CompletionOptions& options) {
  write_text(STDOUT_FILENO, options.shell == "bash"  ? fill(kBashScript, *options.app)
                            : options.shell == "zsh" ? fill(kZshScript, *options.app)
                                                     : fish(*options.app));
  return 0;
}

}  // namespace

void declare_completion(CLI::App& app, Action& action) {
  auto options = std::make_shared<CompletionOptions>();
  options->app = &app;
  CLI::App* command = app.add_subcommand("completion", "Print a shell's completion script");
  command->add_option("shell", options->shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Examples:\n"
      "  eval \"$(muster completion bash)\"                  # in ~/.bashrc\n"
      "  eval \"$(muster completion zsh)\"                   # in ~/.zshrc\n"
      "  muster completion fish | source                   # in ~/.config/fish/config.fish");
  on_call(*command, action, options, completion);
}

}  // namespace muster::cli

#include "cli/run/pasted_command.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

#include "cli/jobs/job_arguments.h"
#include "daemon/command_line.h"
#include "daemon/process.h"
#include "jobspec/dialects/dialect.h"
#include "jobspec/dialects/launcher.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// The command at the beginning of `words`, if it takes a config, and the number of words in its
// name.
struct Command {
  const CLI::App* app = nullptr;
  size_t words = 0;
};

Command command_of(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* found = &app;
  size_t count = 0;
  while (count < words.size() && !words[count].empty()) {
    const auto below = daemon::commands_of(*found);
    const auto next = std::find_if(below.begin(), below.end(), [&](const CLI::App* command) {
      return command->get_name() == words[count];
    });
    if (next == below.end()) break;
    found = *next;
    ++count;
  }
  if (found->get_option_no_throw(kOverrides) == nullptr) return {};
  return {found, count};
}

// Returns whether `word` is an option of the command itself, and whether the next word is its
// value.
struct OwnOption {
  bool is_own = false;
  bool takes_next = false;
};

OwnOption own_option(const CLI::App& command, const std::string& word) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const CLI::Option* option =
      absl::StartsWith(name, "-") ? command.get_option_no_throw(name) : nullptr;
  if (option == nullptr) return {};
  return {.is_own = true,
          .takes_next = equals == std::string::npos && option->get_items_expected_max() > 0};
}

struct Separated {
  std::vector<std::string> own;      // options of the command itself, with their values
  std::vector<std::string> foreign;  // the remaining words
  bool is_by_user = false;           // the user has typed `--`
  size_t before = 0;  // the foreign words before that `--` that belong to the command itself
};

// Every word after `--` is foreign, in any form.
Separated separate(const CLI::App& command, const std::vector<std::string>& words) {
  Separated out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      out.is_by_user = true;
      // A command for an existing job has the job's number and keys there, other ones variables.
      if (command.get_option_no_throw("job") != nullptr) out.before = out.foreign.size();
      const auto rest = words.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      out.foreign.insert(out.foreign.end(), rest, words.end());
      break;
    }
    const OwnOption option = own_option(command, words[i]);
    (option.is_own ? out.own : out.foreign).push_back(words[i]);
    if (option.takes_next && i + 1 < words.size()) out.own.push_back(words[++i]);
  }
  return out;
}

// Returns the index of a user's program behind `--`: a word that is neither a flag nor a config.
// NAME=VALUE words in front of it are its environment, as in a shell, where ./a=b is a program.
// Commands that only read configs interpret the line as one of the known programs.
std::optional<size_t> begin_of_program(const CLI::App& command, const Separated& words) {
  if (!words.is_by_user || command.get_option_no_throw(kProgram) == nullptr) return std::nullopt;
  size_t at = words.before;
  while (at < words.foreign.size() && jobspec::is_assignment(words.foreign[at])) ++at;
  if (at == words.foreign.size()) return std::nullopt;
  const std::string& first = words.foreign[at];
  const bool is_config = absl::StartsWith(first, "-") || absl::EndsWith(first, ".yml") ||
                         absl::EndsWith(first, ".yaml");
  return is_config ? std::nullopt : std::optional(at);
}

absl::StatusOr<ArrangedCommand> arrange_program(std::vector<std::string> words,
                                                const Separated& separated, size_t begin) {
  const auto& foreign = separated.foreign;
  words.insert(words.end(), separated.own.begin(), separated.own.end());
  size_t i = 0;
  for (; i < separated.before; ++i) words.push_back(foreign[i]);
  for (; i < begin; ++i) words.insert(words.end(), {"--env", foreign[i]});
  const auto first = foreign.begin() + static_cast<std::ptrdiff_t>(begin);
  const nlohmann::json program = std::vector<std::string>(first, foreign.end());
  try {
    words.push_back(absl::StrCat(kProgram, "=", program.dump()));
  } catch (const nlohmann::json::type_error&) {
    return absl::InvalidArgumentError("the program's command line must be UTF-8");
  }
  return ArrangedCommand{std::move(words), {}};
}

// Moves NCCL_…=VALUE from the words to the options of the command, which pass it to the ranks.
void pass_to_ranks(const CLI::App& command, Separated& words) {
  if (command.get_option_no_throw("--env") == nullptr) return;
  for (const std::string& word : words.foreign) {
    if (jobspec::is_of_ranks(word)) words.own.insert(words.own.end(), {"--env", word});
  }
  std::erase_if(words.foreign, jobspec::is_of_ranks);
}

// True for `CONFIG=GPT126M muster run [key=value …]`: the shell has taken CONFIG off the line.
bool is_config_exported(const std::vector<std::string>& words) {
  const char* config = std::getenv("CONFIG");
  return config != nullptr && config[0] != '\0' &&
         std::ranges::all_of(words, [](const std::string& word) {
           return !absl::StartsWith(word, "-") && !absl::EndsWith(word, ".yml") &&
                  absl::StrContains(word, "=");
         });
}

}  // namespace

absl::StatusOr<ArrangedCommand> arrange_pasted_command(const CLI::App& app,
                                                       std::vector<std::string> words) {
  const Command command = command_of(app, words);
  if (command.app == nullptr) return ArrangedCommand{std::move(words), {}};
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(command.words);
  Separated separated = separate(*command.app, {begin, words.end()});
  if (separated.is_by_user && separated.foreign.empty() &&
      command.app->get_option_no_throw(kProgram) != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no program after --: muster ",
                                                   absl::StrJoin(words.begin(), begin, " "),
                                                   " -- COMMAND ARGS"));
  }
  if (const auto program = begin_of_program(*command.app, separated)) {
    return arrange_program({words.begin(), begin}, separated, *program);
  }
  const size_t words_before = separated.foreign.size();
  pass_to_ranks(*command.app, separated);
  const bool has_moved = separated.foreign.size() != words_before;
  const auto launch = jobspec::skip_launcher(separated.foreign);
  if (!launch.ok()) return launch.status();
  const CLI::Option* config = command.app->get_option_no_throw("config");
  if (!launch->has_program && config != nullptr && config->get_required() &&
      is_config_exported(separated.foreign))
    separated.foreign.insert(separated.foreign.begin(),
                             absl::StrCat("CONFIG=", std::getenv("CONFIG")));
  const bool is_foreign = jobspec::dialect_of(separated.foreign) != jobspec::Dialect::kMaxText ||
                          std::ranges::any_of(separated.foreign, [](const std::string& word) {
                            return !jobspec::why_word_without_effect(word).empty();
                          });
  if (!launch->has_program && !is_foreign && !has_moved)
    return ArrangedCommand{std::move(words), {}};
  ArrangedCommand arranged;
  words.erase(begin, words.end());
  words.insert(words.end(), separated.own.begin(), separated.own.end());
  for (const std::string& assignment : launch->environment) {
    if (absl::StartsWith(assignment, "M_")) {
      arranged.key_variables.push_back(assignment);
    } else {
      words.insert(words.end(), {"--env", assignment});
    }
  }
  // Without `--`, CLI11 names the option that a MaxText line may have meant.
  if (is_foreign || separated.is_by_user) words.push_back("--");
  words.insert(words.end(), separated.foreign.begin(), separated.foreign.end());
  arranged.words = std::move(words);
  return arranged;
}

absl::StatusOr<std::string> shipped_base_yml() {
  std::error_code error;
  const auto own = daemon::own_executable_path();
  if (!own.ok()) return own.status();
  const fs::path bin = fs::path(*own).parent_path();
  // In an installation bin/ and share/ are siblings; in a build tree the program is in
  // build/PRESET/bin. The working directory comes last.
  const fs::path places[] = {bin / "../share/muster/configs/base.yml",
                             bin / "../../../configs/base.yml", "configs/base.yml"};
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place, error)) return place.lexically_normal().string();
  }
  return absl::NotFoundError(
      "no configs/base.yml beside this program or in the working directory; give a config: "
      "FILE.yml");
}

}  // namespace muster::cli

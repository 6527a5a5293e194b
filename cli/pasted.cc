#include "cli/pasted.h"

#include <algorithm>
#include <filesystem>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "cli/job_arguments.h"
#include "daemon/command_line.h"
#include "daemon/process.h"
#include "jobspec/dialect.h"
#include "jobspec/launcher.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// The command that `words` begin with, if it takes a config, and how many words name it.
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

// Whether `word` is an option of the command's own, and whether the next word is its value.
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

// Muster's own options stay in front, everything else goes behind `--`.
std::vector<std::string> separate(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> own, foreign;
  for (size_t i = 0; i < words.size(); ++i) {
    const OwnOption option = own_option(command, words[i]);
    (option.is_own ? own : foreign).push_back(words[i]);
    if (option.takes_next && i + 1 < words.size()) own.push_back(words[++i]);
  }
  own.push_back("--");
  own.insert(own.end(), foreign.begin(), foreign.end());
  return own;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> arrange_pasted(const CLI::App& app,
                                                        std::vector<std::string> words) {
  const Command command = command_of(app, words);
  if (command.app == nullptr || std::find(words.begin(), words.end(), "--") != words.end())
    return words;
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(command.words);
  std::vector<std::string> rest(begin, words.end());
  const auto environment = jobspec::skip_launcher(rest);
  if (!environment.ok()) return environment.status();
  if (jobspec::dialect_of(rest) != jobspec::Dialect::kMaxText) rest = separate(*command.app, rest);
  for (const std::string& assignment : *environment)
    rest.insert(rest.begin(), {"--env", assignment});
  words.erase(begin, words.end());
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

absl::StatusOr<std::string> shipped_base_yml() {
  std::error_code error;
  const auto own = daemon::own_executable_path();
  if (!own.ok()) return own.status();
  const fs::path bin = fs::path(*own).parent_path();
  // Installed: bin/ and share/ are neighbours. Built: the tree's build/PRESET/bin.
  const fs::path places[] = {"configs/base.yml", bin / "../share/muster/configs/base.yml",
                             bin / "../../../configs/base.yml"};
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place, error)) return place.lexically_normal().string();
  }
  return absl::NotFoundError(
      "there is no configs/base.yml here or beside this program; name one: FILE.yml");
}

std::string find_base_yml(const std::string& path, std::vector<std::string>& warnings) {
  std::error_code error;
  if (fs::exists(path, error) ||
      !absl::EndsWith(absl::AsciiStrToLower(path), "maxtext/configs/base.yml"))
    return path;
  const auto shipped = shipped_base_yml();
  if (!shipped.ok()) return path;
  warnings.push_back(absl::StrCat(path, " is not here; taking ", *shipped));
  return *shipped;
}

}  // namespace muster::cli

#include "cli/terminal/completion_line.h"

#include <wordexp.h>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include "cli/command.h"
#include "daemon/command_line.h"

namespace muster::cli {
namespace {

// Returns the words of a shell's line, without quotes and with variables and ~ replaced.
std::optional<std::vector<std::string>> shell_words(const std::string& line) {
  wordexp_t expanded = {};
  const int error = wordexp(line.c_str(), &expanded, WRDE_NOCMD | WRDE_UNDEF);
  const absl::Cleanup release = [&expanded] { wordfree(&expanded); };
  if (error != 0) return std::nullopt;
  return std::vector<std::string>(expanded.we_wordv, expanded.we_wordv + expanded.we_wordc);
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// Returns the option of a command or of one that contains it: "--rank", "-f"; nullptr if there is
// none.
const CLI::Option* find_option(const CLI::App* command, const std::string& name) {
  for (; command != nullptr; command = command->get_parent())
    if (const CLI::Option* option = command->get_option_no_throw(name)) return option;
  return nullptr;
}

CompletedWord word_of_type(const CLI::Option& option, CompletedWord otherwise) {
  if (option.get_type_name() == "JOB") return CompletedWord::kJob;
  return option.get_type_name() == "NODE" ? CompletedWord::kNode : otherwise;
}

// Reads the words of a line one after the other.
class Reader {
 public:
  explicit Reader(const CLI::App& app) : command_(&app) {}

  void read(const std::string& word) {
    if (pending_ != nullptr) return set(*std::exchange(pending_, nullptr), word);
    if (is_program_) return;
    if (word == "--") {
      is_program_ = true;
      return;
    }
    if (word.size() > 1 && word.front() == '-') return read_option(word);
    if (typed_.arguments.empty()) {
      for (const CLI::App* below : daemon::commands_of(*command_)) {
        if (!below->check_name(word)) continue;
        command_ = below;
        typed_.command = below->get_name();
        return;
      }
    }
    typed_.arguments.push_back(word);
  }

  // `NAME=value` in front of the program.
  void read_variable(const std::string& word) {
    const size_t equals = word.find('=');
    variables_[word.substr(0, equals)] = word.substr(equals + 1);
  }

  TypedLine finish(const std::string& last) {
    for (const CLI::Option* option : command_->get_options()) {
      const auto variable = variables_.find(option->get_envname());
      if (variable != variables_.end())
        typed_.options.emplace(option->get_lnames().front(), variable->second);
    }
    typed_.word = word_at_cursor(last);
    if (typed_.word == CompletedWord::kKeyValue) typed_.key = last.substr(0, last.find('='));
    return std::move(typed_);
  }

 private:
  void set(const CLI::Option& option, const std::string& value) {
    if (!option.get_lnames().empty()) typed_.options[option.get_lnames().front()] = value;
  }

  // "--tail", "--tail=5", "-n", "-n5"
  void read_option(const std::string& word) {
    const bool is_long = word.starts_with("--");
    const size_t end = is_long ? std::min(word.find('='), word.size()) : size_t{2};
    const CLI::Option* option = find_option(command_, word.substr(0, end));
    if (option == nullptr || !takes_value(*option)) return;
    if (end == word.size())
      pending_ = option;
    else
      set(*option, word.substr(end + (is_long ? 1 : 0)));
  }

  CompletedWord word_at_cursor(const std::string& last) const {
    if (pending_ != nullptr) return word_of_type(*pending_, CompletedWord::kFile);
    if (is_program_) return CompletedWord::kAny;
    const bool has_equals = last.find('=') != std::string::npos;
    if (last.starts_with('-')) return has_equals ? CompletedWord::kFile : CompletedWord::kAny;
    if (has_equals) return CompletedWord::kKeyValue;
    const CLI::Option* argument = nullptr;
    size_t position = 0;
    for (const CLI::Option* option : command_->get_options()) {
      if (!option->get_positional()) continue;
      if (position++ == typed_.arguments.size() || option->get_items_expected_max() > 1)
        argument = option;
      if (position > typed_.arguments.size()) break;
    }
    return argument == nullptr ? CompletedWord::kAny : word_of_type(*argument, CompletedWord::kAny);
  }

  const CLI::App* command_;
  const CLI::Option* pending_ = nullptr;  // its value is the next word
  bool is_program_ = false;               // behind `--`
  std::map<std::string, std::string> variables_;
  TypedLine typed_;
};

}  // namespace

std::optional<TypedLine> parse_typed_line(const CLI::App& app, const std::string& line) {
  auto words = shell_words(line);
  if (!words) return std::nullopt;
  std::string last;
  if (!words->empty() && !line.empty() && !absl::ascii_isspace(line.back())) {
    last = std::move(words->back());
    words->pop_back();
  }
  Reader reader(app);
  bool is_behind_program = false;
  for (const std::string& word : *words) {
    if (is_behind_program)
      reader.read(word);
    else if (word.find('=') != std::string::npos)
      reader.read_variable(word);
    else
      is_behind_program = true;
  }
  return reader.finish(last);
}

std::optional<CoordinatorTarget> coordinator_of(const TypedLine& typed) {
  std::vector<std::string> flags;
  for (const char* name : {"coordinator", "tls-ca", "tls-cert", "tls-key", "token-file"}) {
    const auto option = typed.options.find(name);
    if (option != typed.options.end())
      flags.push_back(absl::StrCat("--", name, "=", option->second));
  }
  CoordinatorTarget own;
  CoordinatorTarget target;
  try {
    CLI::App without_line;
    add_coordinator_option(without_line, own);
    without_line.parse(std::vector<std::string>());
    CLI::App app;
    add_coordinator_option(app, target);
    app.parse(std::move(flags));
  } catch (const CLI::Error&) {
    return std::nullopt;
  }
  if (!target.trust.token_file.empty() && typed.options.count("token-file") == 0 &&
      target.address != own.address)
    return std::nullopt;
  return target;
}

}  // namespace muster::cli

#include "daemon/help.h"

#include <memory>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>

#include "common/text/escape.h"
#include "common/version.h"

namespace muster::daemon {
namespace {

constexpr size_t kValueShown = 64;

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    label("SUBCOMMAND", "COMMAND");
    label("OPTIONS", "options");
    label("Positionals", "Arguments");
  }

  // Formats "--ranks N".
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    return absl::StrCat(" ", option->get_type_name(), is_list ? " ..." : "");
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    // "--no-pin-ranks" explains itself without CLI11's mark.
    return absl::StrReplaceAll(CLI::Formatter::make_option_name(option, is_positional),
                               {{"{false}", ""}});
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::vector<std::string> notes;
    if (option->get_required() && !option->get_positional()) notes.push_back("required");
    if (!option->get_default_str().empty())
      notes.push_back(absl::StrCat("default ", option->get_default_str()));
    if (!option->get_envname().empty())
      notes.push_back(absl::StrCat("or $", option->get_envname()));
    return notes.empty()
               ? option->get_description()
               : absl::StrCat(option->get_description(), " (", absl::StrJoin(notes, ", "), ")");
  }

  // Separates parts by one empty line.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return absl::StrReplaceAll(CLI::Formatter::make_help(app, std::move(name), mode),
                               {{"\n\n\n", "\n\n"}});
  }
};

}  // namespace

void use_our_help(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", absl::StrCat(app.get_name(), " ", kVersion),
                       "Print the version");
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  const auto check = [least, most](std::string& text) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < least || value > most)
      return absl::StrCat("'", printable(text, kValueShown), "' is not a whole number from ", least,
                          " to ", most);
    text = absl::StrCat(value);
    return std::string();
  };
  return CLI::Validator(check, "");
}

CLI::Validator number(double least, double most) {
  const auto check = [least, most](const std::string& text) {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && value >= least && value <= most) return std::string();
    return absl::StrCat("'", printable(text, kValueShown), "' is not a number from ", least, " to ",
                        most);
  };
  return CLI::Validator(check, "");
}

CLI::Option* add_list(CLI::App& command, const char* names, std::vector<std::string>& values,
                      const char* type, const std::string& help) {
  return command.add_option(names, values, help)->type_name(type)->allow_extra_args(false);
}

}  // namespace muster::daemon

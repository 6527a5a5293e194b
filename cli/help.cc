#include "cli/help.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace muster::cli {

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return "";
  const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
  return absl::StrCat(" ", option->get_type_name(), is_list ? " ..." : "");
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  std::vector<std::string> notes;
  if (option->get_required() && !option->get_positional()) notes.push_back("required");
  if (!option->get_default_str().empty())
    notes.push_back(absl::StrCat("default ", option->get_default_str()));
  if (!option->get_envname().empty()) notes.push_back(absl::StrCat("or $", option->get_envname()));
  return notes.empty()
             ? option->get_description()
             : absl::StrCat(option->get_description(), " (", absl::StrJoin(notes, ", "), ")");
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  const auto check = [least, most](const std::string& text) {
    int64_t value = 0;
    if (absl::SimpleAtoi(text, &value) && value >= least && value <= most) return std::string();
    return absl::StrCat("'", text, "' is not a whole number from ", least, " to ", most);
  };
  return CLI::Validator(check, "");
}

CLI::Validator number(double least, double most) {
  const auto check = [least, most](const std::string& text) {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && value >= least && value <= most) return std::string();
    return absl::StrCat("'", text, "' is not a number from ", least, " to ", most);
  };
  return CLI::Validator(check, "");
}

CLI::Option* add_list(CLI::App& command, const char* names, std::vector<std::string>& values,
                      const char* type, const std::string& help) {
  return command.add_option(names, values, help)->type_name(type)->allow_extra_args(false);
}

}  // namespace muster::cli

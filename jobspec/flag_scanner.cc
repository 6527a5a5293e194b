#include "jobspec/flag_scanner.h"

#include <algorithm>
#include <optional>
#include <span>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/absl_view.h"
#include "common/nearest.h"
#include "jobspec/value.h"

namespace muster::jobspec {
namespace {

constexpr absl::string_view kParameterPrefix = "fdl.";

const Flag* find_flag(std::span<const Flag> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Flag& f) { return f.name == name; });
  return found == table.end() ? nullptr : &*found;
}

absl::Status unknown(std::span<const Flag> table, const std::string& prefix,
                     const std::string& name, std::string_view program) {
  std::vector<std::string_view> names;
  for (const Flag& flag : table) names.push_back(flag.name);
  const std::string_view nearest = nearest_name(name, names);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag ", show(prefix + name), " of ", av(program),
      nearest.empty() ? "" : absl::StrCat("; did you mean ", prefix, av(nearest), "?")));
}

// Goes over the words once; a flag of absl's kind may have its value in the next word.
class Scanner {
 public:
  Scanner(Dialect dialect, const std::vector<std::string>& words)
      : dialect_(dialect), words_(words) {}

  absl::Status scan(std::vector<Given>& given, Translation& out);

 private:
  absl::StatusOr<Given> flag_at(size_t& i) const;
  absl::StatusOr<Given> parameter(const std::string& name, std::optional<std::string> value) const;

  const Dialect dialect_;
  const std::vector<std::string>& words_;
};

absl::StatusOr<Given> Scanner::parameter(const std::string& name,
                                         std::optional<std::string> value) const {
  const Flag* flag = find_flag(pax_parameters(), name);
  if (flag == nullptr) return unknown(pax_parameters(), "--fdl.", name, "Pax");
  if (!value) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fdl.", name, ": expected --fdl.", name, "=VALUE"));
  }
  return Given{flag, absl::StrCat("--fdl.", name), *std::move(value)};
}

// `i` moves on to the flag's last word.
absl::StatusOr<Given> Scanner::flag_at(size_t& i) const {
  const absl::string_view word = absl::StripPrefix(absl::StripPrefix(words_[i], "-"), "-");
  const size_t equals = word.find('=');
  std::string name(word.substr(0, equals));
  std::optional<std::string> value;
  if (equals != absl::string_view::npos) value = std::string(word.substr(equals + 1));
  if (dialect_ == Dialect::kPax && absl::StartsWith(name, kParameterPrefix)) {
    return parameter(name.substr(kParameterPrefix.size()), std::move(value));
  }
  const auto table = dialect_ == Dialect::kPax ? pax_flags() : axlearn_flags();
  const Flag* flag = find_flag(table, name);
  if (flag == nullptr && !value && absl::StartsWith(name, "no")) {
    flag = find_flag(table, name.substr(2));
    if (flag != nullptr && flag->is_switch)
      return Given{flag, absl::StrCat("--", av(flag->name)), "false"};
    flag = nullptr;
  }
  if (flag == nullptr)
    return unknown(table, "--", name, dialect_ == Dialect::kPax ? "Pax" : "AXLearn");
  if (!value && flag->is_switch) value = "true";
  if (!value && i + 1 < words_.size() && !absl::StartsWith(words_[i + 1], "--"))
    value = words_[++i];
  if (!value) {
    return absl::InvalidArgumentError(absl::StrCat("--", name, ": expected --", name, "=VALUE"));
  }
  return Given{flag, absl::StrCat("--", name), *std::move(value)};
}

// Names that JAX-Toolbox's scripts read from the environment; keys of a config are in small letters.
bool is_variable(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 &&
         std::none_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                      [](char c) { return absl::ascii_islower(static_cast<unsigned char>(c)); });
}

absl::Status Scanner::scan(std::vector<Given>& given, Translation& out) {
  for (size_t i = 0; i < words_.size(); ++i) {
    const std::string& word = words_[i];
    const size_t equals = word.find('=');
    if (absl::StartsWith(word, "-")) {
      auto flag = flag_at(i);
      if (!flag.ok()) return flag.status();
      given.push_back(*std::move(flag));
    } else if (dialect_ == Dialect::kPax && is_variable(word)) {
      const std::string name = word.substr(0, equals);
      const Flag* flag = find_flag(pax_variables(), name);
      if (flag == nullptr) return unknown(pax_variables(), "", name, "Pax's scripts");
      given.push_back({flag, name, word.substr(equals + 1)});
    } else if (equals != std::string::npos) {
      out.overrides.push_back(word);
    } else if (absl::EndsWith(word, ".yml") && out.config_path.empty()) {
      out.config_path = word;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(show(word), ": expected --flag=value, key=value or one FILE.yml"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status scan_flags(Dialect dialect, const std::vector<std::string>& words,
                        std::vector<Given>& given, Translation& out) {
  return Scanner(dialect, words).scan(given, out);
}

}  // namespace muster::jobspec

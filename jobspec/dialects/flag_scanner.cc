#include "jobspec/dialects/flag_scanner.h"

#include <algorithm>
#include <optional>
#include <span>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "jobspec/dialects/variables.h"
#include "jobspec/files/value.h"
#include "jobspec/settings/keys.h"

namespace muster::jobspec {
namespace {

constexpr absl::string_view kParameterPrefix = "fdl.";

const Flag* find_flag(std::span<const Flag> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Flag& f) { return f.name == name; });
  return found == table.end() ? nullptr : &*found;
}

absl::Status unknown(const std::vector<std::string_view>& names, const std::string& prefix,
                     const std::string& name, std::string_view program) {
  const std::string_view nearest = nearest_name(name, names);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag ", show(prefix + name), " of ", av(program),
      nearest.empty() ? "" : absl::StrCat("; did you mean ", prefix, av(nearest), "?")));
}

absl::Status unknown(std::span<const Flag> table, const std::string& prefix,
                     const std::string& name, std::string_view program) {
  std::vector<std::string_view> names;
  for (const Flag& flag : table) names.push_back(flag.name);
  return unknown(names, prefix, name, program);
}

// Scans the words once; a flag in absl's form may have its value in the next word.
class Scanner {
 public:
  Scanner(Dialect dialect, const std::vector<std::string>& words)
      : dialect_(dialect), words_(words) {}

  absl::Status scan(std::vector<GivenFlag>& given, Translation& out);

 private:
  absl::StatusOr<GivenFlag> flag_at(size_t& i) const;
  absl::StatusOr<GivenFlag> parameter(const std::string& name,
                                      std::optional<std::string> value) const;

  absl::Status variable(const std::string& name, const std::string& value);

  const Dialect dialect_;
  const std::vector<std::string>& words_;
  std::vector<GivenFlag> variables_;
};

absl::StatusOr<GivenFlag> Scanner::parameter(const std::string& name,
                                             std::optional<std::string> value) const {
  const Flag* flag = find_flag(pax_parameters(), name);
  if (flag == nullptr) return unknown(pax_parameters(), "--fdl.", name, "Pax");
  if (!value) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fdl.", name, ": expected --fdl.", name, "=VALUE"));
  }
  return GivenFlag{flag, absl::StrCat("--fdl.", name), *std::move(value)};
}

// Advances `i` to the flag's last word.
absl::StatusOr<GivenFlag> Scanner::flag_at(size_t& i) const {
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
      return GivenFlag{flag, absl::StrCat("--", av(flag->name)), "false"};
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
  return GivenFlag{flag, absl::StrCat("--", name), *std::move(value)};
}

// True for a name that JAX-Toolbox's scripts read from the environment; config keys are in lower
// case.
bool is_variable(std::string_view name) {
  return std::none_of(name.begin(), name.end(),
                      [](char c) { return absl::ascii_islower(static_cast<unsigned char>(c)); });
}

// The key nearest to STEPS=5 is steps.
absl::Status unknown_variable(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Flag& flag : pax_variables()) names.push_back(flag.name);
  for (const Key& key : all_keys()) names.push_back(key.name);
  return unknown(names, "", name, "Pax's scripts");
}

absl::Status Scanner::variable(const std::string& name, const std::string& value) {
  const Flag* flag = find_flag(pax_variables(), name);
  if (flag == nullptr) {
    const absl::Status unread = check_no_variable(name, value);
    return unread.ok() ? unknown_variable(name) : unread;
  }
  variables_.push_back({flag, name, value});
  return absl::OkStatus();
}

absl::Status Scanner::scan(std::vector<GivenFlag>& given, Translation& out) {
  std::vector<GivenFlag> flags;
  for (size_t i = 0; i < words_.size(); ++i) {
    const std::string& word = words_[i];
    const auto split = split_override(word);
    if (absl::StartsWith(word, "-")) {
      auto flag = flag_at(i);
      if (!flag.ok()) return flag.status();
      flags.push_back(*std::move(flag));
    } else if (split.ok() && is_variable(split->first) && dialect_ == Dialect::kPax) {
      if (auto status = variable(split->first, split->second); !status.ok()) return status;
    } else if (split.ok()) {
      out.overrides.push_back(word);
    } else if (absl::EndsWith(word, ".yml") && out.config_path.empty()) {
      out.config_path = word;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(show(word), ": expected --flag=value, key=value or one FILE.yml"));
    }
  }
  // A script builds its flags from its variables, so that a flag wins wherever it stands.
  given.insert(given.end(), variables_.begin(), variables_.end());
  given.insert(given.end(), flags.begin(), flags.end());
  return absl::OkStatus();
}

}  // namespace

absl::Status scan_flags(Dialect dialect, const std::vector<std::string>& words,
                        std::vector<GivenFlag>& given, Translation& out) {
  return Scanner(dialect, words).scan(given, out);
}

absl::Status scan_exported(const std::vector<std::string>& assignments,
                           std::vector<GivenFlag>& given, Translation& out) {
  std::vector<GivenFlag> exported;
  if (auto status = scan_flags(Dialect::kPax, assignments, exported, out); !status.ok())
    return status;
  for (GivenFlag& flag : exported) {
    flag.shown = absl::StrCat("environment ", flag.shown);
    given.push_back(std::move(flag));
  }
  return absl::OkStatus();
}

}  // namespace muster::jobspec

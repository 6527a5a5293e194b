#include "jobspec/files/value.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "jobspec/files/yaml_file.h"

namespace muster::jobspec {
namespace {

// Longest value that an error repeats in full.
constexpr size_t kShownBytesMax = 80;

// Numbers are used in fp32 computations.
constexpr double kNumberMax = std::numeric_limits<float>::max();

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Python's digit grouping: removes an underscore between two digits, and leaves others, which are
// rejected later.
std::string without_digit_groups(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool grouping = text[i] == '_' && i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) &&
                          is_digit(text[i + 1]);
    if (!grouping) plain.push_back(text[i]);
  }
  return plain;
}

std::optional<bool> to_bool(std::string_view text) {
  const std::string lower = absl::AsciiStrToLower(av(text));
  if (lower == "true") return true;
  if (lower == "false") return false;
  return std::nullopt;
}

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  if (text.empty() || !absl::SimpleAtoi(without_digit_groups(text), &value)) return std::nullopt;
  return value;
}

std::optional<double> to_number(std::string_view text) {
  double value = 0;
  if (text.find_first_of("xX") != std::string_view::npos) return std::nullopt;  // hexadecimal in C
  if (text.empty() || !absl::SimpleAtod(without_digit_groups(text), &value)) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

bool is_null(std::string_view text) {
  return text.empty() || text == "None" || text == "null" || text == "~";
}

// Returns "; did you mean KEY=true?" for words of other programs and misspelt ones.
std::string meant_bool(std::string_view key, std::string_view text) {
  static constexpr std::string_view kTrue[] = {"yes", "on", "1", "y", "t", "enable", "enabled"};
  static constexpr std::string_view kFalse[] = {"no", "off", "0", "n", "f", "disable", "disabled"};
  static constexpr std::string_view kBoth[] = {"true", "false"};
  const std::string lower = absl::AsciiStrToLower(av(text));
  const std::string_view meant = std::ranges::find(kTrue, lower) != std::end(kTrue) ? kBoth[0]
                                 : std::ranges::find(kFalse, lower) != std::end(kFalse)
                                     ? kBoth[1]
                                     : nearest_name(lower, kBoth);
  return meant.empty() ? "" : absl::StrCat("; did you mean ", av(key), "=", av(meant), "?");
}

}  // namespace

// Compares two error handlers of the serialiser, which differ only for invalid UTF-8.
bool is_utf8(std::string_view text) {
  const nlohmann::json json = std::string(text);
  using Handler = nlohmann::json::error_handler_t;
  return json.dump(-1, ' ', false, Handler::ignore) == json.dump(-1, ' ', false, Handler::replace);
}

std::string_view type_name(ValueType type) {
  switch (type) {
    case ValueType::kString:
      return "text";
    case ValueType::kInteger:
      return "an integer";
    case ValueType::kNumber:
      return "a number";
    case ValueType::kBool:
      return "true or false";
    case ValueType::kList:
      return "a list such as ['a', 'b']";
    case ValueType::kOptionalInteger:
      return "an integer or None";
  }
  return "";
}

absl::StatusOr<nlohmann::json> parse_value(std::string_view key, ValueType type,
                                           std::string_view text) {
  if (text.size() > kValueBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(av(key), ": the value has ", text.size(),
                                                   " bytes, but at most ", kValueBytesMax,
                                                   " are taken"));
  }
  if (text.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(av(key), ": the value must not have NUL bytes"));
  }
  if (!is_utf8(text)) {
    return absl::InvalidArgumentError(absl::StrCat(av(key), ": the value must be UTF-8"));
  }
  const std::string_view trimmed = sv(absl::StripAsciiWhitespace(av(text)));
  std::optional<nlohmann::json> value;
  switch (type) {
    case ValueType::kString:
      value = std::string(text);
      break;
    case ValueType::kInteger:
      if (const auto integer = to_integer(trimmed)) value = *integer;
      break;
    case ValueType::kNumber:
      if (const auto number = to_number(trimmed)) value = *number;
      break;
    case ValueType::kBool:
      if (const auto flag = to_bool(trimmed)) value = *flag;
      break;
    case ValueType::kList:
      if (auto list = parse_yaml_list(trimmed); list.ok()) value = *std::move(list);
      break;
    case ValueType::kOptionalInteger:
      if (is_null(trimmed)) {
        value = nullptr;
      } else if (const auto integer = to_integer(trimmed)) {
        value = *integer;
      }
      break;
  }
  if (!value) {
    return absl::InvalidArgumentError(
        absl::StrCat(av(key), "=", show(std::string(text)), ": expected ", av(type_name(type)),
                     type == ValueType::kBool ? meant_bool(key, trimmed) : ""));
  }
  if (type == ValueType::kNumber && std::abs(value->get<double>()) > kNumberMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(av(key), "=", show(std::string(text)), ": must be at most ", kNumberMax));
  }
  return *std::move(value);
}

std::string show(const nlohmann::json& value) {
  std::string text;
  if (value.is_string()) {
    text = value.get<std::string>();
    if (text.empty()) text = "\"\"";
    for (char& c : text) {
      if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
    }
  } else {
    text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  if (text.size() <= kShownBytesMax) return text;
  size_t end = kShownBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "…");
}

absl::StatusOr<std::pair<std::string, std::string>> split_override(std::string_view text) {
  const size_t equals = text.find('=');
  // "steps = 5", quoted as one word. Without a space before '=', the value keeps its own.
  const std::string_view written = text.substr(0, equals);
  const std::string_view key = sv(absl::StripAsciiWhitespace(av(written)));
  if (equals == std::string_view::npos || key.empty()) {
    const size_t colon = text.find(':');
    const bool is_yaml = equals == std::string_view::npos && colon != std::string_view::npos &&
                         colon > 0 && colon + 1 < text.size() && text.substr(colon + 1, 2) != "//";
    return absl::InvalidArgumentError(
        is_yaml ? absl::StrCat(
                      show(std::string(text)), ": expected key=value, here ",
                      show(absl::StrCat(av(text.substr(0, colon)), "=",
                                        absl::StripAsciiWhitespace(av(text.substr(colon + 1))))))
                : absl::StrCat(show(std::string(text)),
                               ": expected key=value without blanks, for example steps=100"));
  }
  std::string_view value = text.substr(equals + 1);
  if (key != written) value = sv(absl::StripAsciiWhitespace(av(value)));
  return std::pair(std::string(key), std::string(value));
}

}  // namespace muster::jobspec

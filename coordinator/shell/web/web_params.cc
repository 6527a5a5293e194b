#include "coordinator/shell/web/web_params.h"

#include <utility>

#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/text/json_depth.h"

namespace muster::coordinator {
namespace {

// The length of a value in an error.
constexpr size_t kValueShown = 64;

}  // namespace

absl::StatusOr<std::string> percent_decoded(std::string_view text, bool is_query) {
  const auto refusal = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat(printable(text, kValueShown),
                     ": must be UTF-8, with %XX for bytes that are no URL characters"));
  };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && is_query) {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      if (i + 2 >= text.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) ||
          !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2])))
        return refusal();
      decoded += absl::HexStringToBytes(av(text.substr(i + 1, 2)));
      i += 2;
    }
  }
  if (!is_valid_utf8(decoded)) return refusal();
  return decoded;
}

absl::StatusOr<int64_t> parse_number(std::string_view name, std::string_view text, int64_t min,
                                     int64_t max) {
  int64_t value = 0;
  const bool is_plain = !text.empty() && text.find_first_not_of("-0123456789") == text.npos;
  if (is_plain && absl::SimpleAtoi(av(text), &value) && value >= min && value <= max) return value;
  return absl::InvalidArgumentError(absl::StrCat(av(name), " is ", printable(text, kValueShown),
                                                 ": must be a number from ", min, " to ", max));
}

absl::StatusOr<WebParams> WebParams::of_query(std::string_view query) {
  WebParams params;
  params.is_query_ = true;
  for (const absl::string_view part : absl::StrSplit(av(query), '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    auto name = percent_decoded(sv(pair.first), true);
    if (!name.ok()) return name.status();
    auto value = percent_decoded(sv(pair.second), true);
    if (!value.ok()) return value.status();
    if (!params.values_.emplace(*name, *value).second)
      return absl::InvalidArgumentError(
          absl::StrCat(printable(*name, kValueShown), ": is given twice"));
  }
  return params;
}

absl::StatusOr<WebParams> WebParams::of_body(const std::string& body) {
  if (!is_shallow_json(body))
    return absl::InvalidArgumentError(
        absl::StrCat("the body is nested deeper than ", kJsonDepthMax, " levels"));
  nlohmann::json value = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object())
    return absl::InvalidArgumentError("the body must be a JSON object, such as {}");
  WebParams params;
  for (auto& [name, member] : value.items()) params.values_[name] = std::move(member);
  return params;
}

const nlohmann::json* WebParams::find(const std::string& name) {
  read_.insert(name);
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

void WebParams::fail(const std::string& name, const nlohmann::json& value,
                     std::string_view expected) {
  if (!status_.ok()) return;
  const std::string shown =
      value.is_string() ? value.get<std::string>()
                        : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  status_ = absl::InvalidArgumentError(
      absl::StrCat(name, " is ", printable(shown, kValueShown), ": must be ", av(expected)));
}

int64_t WebParams::number(const std::string& name, int64_t min, int64_t max, int64_t otherwise) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  const std::string expected = absl::StrCat("a number from ", min, " to ", max);
  if (is_query_) {
    const auto parsed = parse_number(name, value->get<std::string>(), min, max);
    if (parsed.ok()) return *parsed;
    status_.Update(parsed.status());
    return otherwise;
  }
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= uint64_t{INT64_MAX});
  if (fits && value->get<int64_t>() >= min && value->get<int64_t>() <= max)
    return value->get<int64_t>();
  fail(name, *value, expected);
  return otherwise;
}

bool WebParams::flag(const std::string& name, bool otherwise) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  if (is_query_ && *value == "true") return true;
  if (is_query_ && *value == "false") return false;
  fail(name, *value, "true or false");
  return otherwise;
}

std::string WebParams::text(const std::string& name, size_t bytes_max,
                            const std::string& otherwise) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  if (value->is_string() && value->get_ref<const std::string&>().size() <= bytes_max)
    return value->get<std::string>();
  fail(name, *value, absl::StrCat("a text of at most ", bytes_max, " bytes"));
  return otherwise;
}

nlohmann::json WebParams::object(const std::string& name) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) fail(name, *value, "an object");
  return *value;
}

absl::Status WebParams::status() const {
  if (!status_.ok()) return status_;
  for (const auto& [name, value] : values_) {
    if (read_.contains(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("there is no parameter ", printable(name, kValueShown), " here; there ",
                     read_.empty() ? "are none" : "are: ", absl::StrJoin(read_, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace muster::coordinator

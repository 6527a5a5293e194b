// Values of config keys in MaxText's spellings: 150_001, 3.e-5, True/false, ['silu', 'linear'],
// None.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::jobspec {

enum class ValueType {
  kString,
  kInteger,
  kNumber,
  kBool,
  kList,
  kOptionalInteger,  // null for "None", "null" or an empty text
};

// Far above any value of base.yml; bounds errors and memory for untrusted text.
constexpr size_t kValueBytesMax = 16 << 10;

// True if JSON and protobuf accept the text.
bool is_utf8(std::string_view text);

// Returns the type's name for errors: "an integer", "true or false", …
std::string_view type_name(ValueType type);

// Parses `text` as a value of `type`. InvalidArgument names the key, the text and the expected
// type. Lists are YAML flow sequences.
absl::StatusOr<nlohmann::json> parse_value(std::string_view key, ValueType type,
                                           std::string_view text);

// Splits "key=value" or "key = value". InvalidArgument if there is no '=' or no key.
absl::StatusOr<std::pair<std::string, std::string>> split_override(std::string_view text);

// Returns a value for messages: "steps=many", quoted only where necessary and cut when long.
std::string show(const nlohmann::json& value);

}  // namespace muster::jobspec

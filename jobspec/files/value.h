// Parses values of config keys as MaxText writes them: 150_001, 3.e-5, True/false, ['silu',
// 'linear'], None.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::jobspec {

// The type of a key's value.
enum class ValueType {
  kString,
  kInteger,
  kNumber,
  kBool,
  kList,
  kOptionalInteger,  // null for "None", "null" or an empty text
};

// Maximum size of a value, far above any value in base.yml. It limits memory and error messages for
// untrusted text.
constexpr size_t kValueBytesMax = 16 << 10;

// Returns whether `text` is valid UTF-8, which JSON and protobuf require.
bool is_utf8(std::string_view text);

// Returns the type's name for errors: "an integer", "true or false", …
std::string_view type_name(ValueType type);

// Parses `text` as a value of `type`. Returns InvalidArgument, with the key, the text and the
// expected type, if that fails. Lists are YAML flow sequences: [a, b].
absl::StatusOr<nlohmann::json> parse_value(std::string_view key, ValueType type,
                                           std::string_view text);

// Splits "key=value" or "key = value". Returns InvalidArgument if there is no '=' or no key.
absl::StatusOr<std::pair<std::string, std::string>> split_override(std::string_view text);

// Returns a value as text for messages such as "steps=many". Quotes the value only if necessary,
// and cuts a long one.
std::string show(const nlohmann::json& value);

}  // namespace muster::jobspec

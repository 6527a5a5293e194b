// Values of config keys, by MaxText's spellings: 150_001, 3.e-5, True/false, ['silu', 'linear'], None.
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
  kOptionalInteger,  // null when it is "None", "null" or empty
};

// No value of base.yml comes near; keeps errors and memory bounded for text from outside.
constexpr size_t kValueBytesMax = 16 << 10;

// What JSON and protobuf take as a text.
bool is_utf8(std::string_view text);

// "an integer", "true or false", …: how an error names the type.
std::string_view type_name(ValueType type);

// `text` as a value of `type`. InvalidArgument names the key, the text and the type that was expected.
// Lists are YAML flow sequences.
absl::StatusOr<nlohmann::json> parse_value(std::string_view key, ValueType type,
                                           std::string_view text);

// Splits "key=value". InvalidArgument when there is no '=' or no key.
absl::StatusOr<std::pair<std::string, std::string>> split_override(std::string_view text);

// "steps=many" with quotes only where the value needs them to be read; cut when long.
std::string show(const nlohmann::json& value);

}  // namespace muster::jobspec

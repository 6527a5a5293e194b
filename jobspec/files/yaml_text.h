// Writes JSON as readable YAML: a line per field, in the order of `value`. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace muster::jobspec {

// Returns one document without the line "---". Quotes strings that a YAML reader could take for
// another type (yes, 1e3, a date), and writes multi-line strings as blocks. Requires that all
// strings are valid UTF-8.
std::string to_yaml(const nlohmann::ordered_json& value);

}  // namespace muster::jobspec

// Writes JSON as readable YAML: a line per field, in the given order. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace muster::jobspec {

// Returns one document without the line "---". Quotes texts that a YAML reader could misinterpret
// (yes, 1e3, a date), and writes multi-line texts as blocks. Requires UTF-8 in `value`.
std::string to_yaml(const nlohmann::ordered_json& value);

}  // namespace muster::jobspec

// JSON as the YAML that people read: a line for each field, in the order given. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace muster::jobspec {

// One document, without the line "---". Texts that a reader of YAML could take for something else (yes, 1e3, a date) are quoted, and those of several lines are blocks. `value` is UTF-8.
std::string to_yaml(const nlohmann::ordered_json& value);

}  // namespace muster::jobspec

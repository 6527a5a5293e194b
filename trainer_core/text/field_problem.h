// Messages about JSON lines without the requested text: what is there in its place, and the command
// that makes a text of it. Pure functions.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

namespace muster::trainer {

// Returns the first names in quotation marks, separated by commas.
std::string quoted_names(const std::vector<std::string_view>& names);

// Returns NotFound for an object without the field `name`.
absl::Status no_field(std::string_view name, simdjson::dom::object object);

// Returns InvalidArgument for the value of the field `name`, which is no string.
absl::Status no_string(const std::string& name, simdjson::dom::element value);

// Returns InvalidArgument for a line with several objects, or with a separator of other formats. OK
// for any other line.
absl::Status line_problem(std::string_view line);

}  // namespace muster::trainer

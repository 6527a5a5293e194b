// Messages about JSON lines without the requested text. They name what the line has instead, and
// the command that converts it to text. Pure functions.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

namespace muster::trainer {

// Returns the first kNamesShown names (document_text.h) in quotation marks, separated by commas.
std::string quoted_names(const std::vector<std::string_view>& names);

// Returns NotFound for an object without the field `name`.
absl::Status no_field(std::string_view name, simdjson::dom::object object);

// Returns InvalidArgument for a value of the field `name` that is not a string.
absl::Status no_string(const std::string& name, simdjson::dom::element value);

// Returns InvalidArgument for a line with several objects, or with a separator of another format
// (JSON text sequences, the elements of a JSON array). Returns OK for any other line.
absl::Status line_problem(std::string_view line);

}  // namespace muster::trainer

// JSON texts of tokens, issuers and settings.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/text/json_depth.h"

namespace muster::coordinator {

// Returns the value of a text; a discarded one if it is no JSON, or is nested too deep.
inline nlohmann::json parse_shallow(std::string_view text) {
  if (!is_shallow_json(text)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// Returns a member that is a text; "" if there is none, or `value` is no object.
inline std::string text_member(const nlohmann::json& value, const std::string& name) {
  const auto found = value.find(name);
  return found != value.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace muster::coordinator

// An error of the API, in the form of OpenAI's.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/text/escape.h"

namespace muster::serve {

struct ApiError {
  int status = 400;  // HTTP status
  std::string message;
  std::string code{};   // such as "model_not_found"; empty: null
  std::string param{};  // the field of the request; empty: null

  std::string_view type() const {
    if (status == 401) return "authentication_error";
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
  }
  // Returns the body of the response. The message may quote bytes of the request.
  std::string body() const {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nlohmann::json() : nlohmann::json(valid_utf8(text));
    };
    const nlohmann::json error = {{"message", valid_utf8(message)},
                                  {"type", type()},
                                  {"param", or_null(param)},
                                  {"code", or_null(code)}};
    return nlohmann::json{{"error", error}}.dump() + "\n";
  }
};

}  // namespace muster::serve

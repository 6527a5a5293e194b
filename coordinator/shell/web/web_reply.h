// Responses of the page's API: JSON, with one form for all errors.
#pragma once

#include <string>

#include <absl/status/status.h>
#include <nlohmann/json.hpp>

#include "common/time/time.h"
#include "daemon/http_message.h"

namespace muster::coordinator {

constexpr const char* kJsonType = "application/json";

// Returns the JSON on one line. Bytes that are no UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value);
// Returns the JSON as a response, which a large one compresses if the client accepts it.
daemon::HttpResponse json_response(const nlohmann::json& value, bool takes_gzip = false);
// Returns whether the client accepts gzip.
bool takes_gzip(const daemon::HttpRequest& request);
// Smaller responses are not compressed: they fit into a few packets.
constexpr size_t kGzipBytesMin = 16 << 10;

// Returns the HTTP status of an error: 404 for NotFound.
int http_status_of(absl::StatusCode code);
// Returns the code that the HTTP status of a response stands for: OK for 304.
absl::StatusCode code_of_http_status(int status);
// Returns {"error": {"code": "NOT_FOUND", "message": …}}. `retry_after` of an overloaded
// coordinator becomes a header.
daemon::HttpResponse error_response(const absl::Status& status,
                                    Duration retry_after = std::chrono::seconds(1));
// The same with an HTTP status that no code of an absl::Status stands for: 405, 413, 415.
daemon::HttpResponse error_response(int http_status, const absl::Status& status);

// Returns the message of such a response; "" for a response without an error.
std::string error_message(const daemon::HttpResponse& response);

}  // namespace muster::coordinator

// Reads a document by HTTPS, on a connection of its own.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "common/time/time.h"

namespace muster::daemon {

struct HttpsGet {
  std::string host;
  std::string port = "443";
  std::string path = "/";
  std::string authorities{};  // PEM; empty: those of the system
  std::string token{};        // sent as a bearer token; empty: none
  std::string accept = "application/json";
  uint64_t body_bytes_max = 1 << 20;
  Duration budget = std::chrono::seconds(10);
  std::stop_token stop{};  // ends the exchange
};

struct HttpsAnswer {
  unsigned code = 0;
  std::string body;
};

// Returns the request of an address such as "https://sso.example.com:8443/keys". Returns
// InvalidArgument, with what is wrong, for another scheme, and for a user, a space or a fragment.
absl::StatusOr<HttpsGet> parse_https_url(std::string_view url);

// Blocks until the answer has arrived, for at most the budget; the system's resolver may take
// longer. Redirections are not followed. Returns Unavailable, with the step that failed, if there
// was no answer, and soon Cancelled once `stop` is requested.
absl::StatusOr<HttpsAnswer> https_get(const HttpsGet& get);

}  // namespace muster::daemon

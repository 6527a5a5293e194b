// Listening addresses and who may reach them.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::daemon {

struct Endpoint {
  std::string host;  // without brackets for IPv6
  int port = 0;

  std::string to_string() const;  // "127.0.0.1:7070", "[::1]:7070"
};

// Parses "host:port". InvalidArgument names `flag`, the value and the expected form.
absl::StatusOr<Endpoint> parse_endpoint(std::string_view flag, std::string_view text);

// localhost, 127.0.0.0/8 and ::1.
bool is_loopback(const Endpoint& endpoint);

// FailedPrecondition for a listener that others can reach and that is not `allowed`; `why` says what it lacks and what to do.
absl::Status check_exposure(std::string_view flag, const Endpoint& endpoint, bool allowed,
                            std::string_view why);
// The same of listeners that never have transport security: pages to read, and the ranks' rendezvous.
absl::Status check_open_exposure(std::string_view flag, const Endpoint& endpoint, bool allowed);

}  // namespace muster::daemon

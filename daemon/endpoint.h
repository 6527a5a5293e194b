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

// A listener that others can reach needs transport security, which this version lacks: it is
// refused unless the operator said --insecure.
absl::Status check_exposure(std::string_view flag, const Endpoint& endpoint, bool insecure);

}  // namespace muster::daemon

// Listening addresses and their exposure, and the addresses of coordinators.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::daemon {

struct Endpoint {
  std::string host;  // without brackets for IPv6
  int port = 0;

  std::string to_string() const;  // "127.0.0.1:7070", "[::1]:7070"
};

// Parses "host:port". Returns InvalidArgument with `flag`, the value and the expected form.
absl::StatusOr<Endpoint> parse_endpoint(std::string_view flag, std::string_view text);

// The maximum number of coordinators that a program may be given. A store has three or five
// members; the limit keeps a search among addresses that do not answer short.
constexpr size_t kCoordinatorsMax = 9;

// Parses --coordinator: "host:port", or several separated by commas. Returns InvalidArgument with
// the entry and the expected form.
absl::StatusOr<std::vector<Endpoint>> parse_coordinators(std::string_view text);

// Returns whether only this machine can reach the endpoint: localhost, 127.0.0.0/8 or ::1.
bool is_loopback(const Endpoint& endpoint);

// Returns FailedPrecondition for a listener that other machines can reach and that is not
// `allowed`. `why`: the listener's missing protection, and the remedy.
absl::Status check_exposure(std::string_view flag, const Endpoint& endpoint, bool allowed,
                            std::string_view why);
// Like check_exposure(), for listeners that never have transport security: HTTP pages, and the
// ranks' rendezvous.
absl::Status check_open_exposure(std::string_view flag, const Endpoint& endpoint, bool allowed);

}  // namespace muster::daemon

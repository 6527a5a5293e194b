// TCP listeners whose errors name the flag to change.
#pragma once

#include <string_view>

#include <absl/status/status.h>
#include <boost/asio/ip/tcp.hpp>

#include "common/time.h"
#include "daemon/endpoint.h"

namespace muster::daemon {

// Pause after a failed accept (out of descriptors); an immediate retry would spin.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

// Opens `acceptor` on one address of `endpoint`, IPv4 if it has one; port 0 picks a free one.
// Returns AlreadyExists if the port is in use, InvalidArgument if the host has no address; both
// name `flag`.
absl::Status listen_on(std::string_view flag, const Endpoint& endpoint,
                       boost::asio::ip::tcp::acceptor& acceptor);

}  // namespace muster::daemon

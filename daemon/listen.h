// TCP listeners whose errors name the flag to change.
#pragma once

#include <string_view>

#include <absl/status/status.h>
#include <boost/asio/ip/tcp.hpp>

#include "common/time/time.h"
#include "daemon/endpoint.h"

namespace muster::daemon {

// The pause after a failed accept, for example for lack of descriptors. Without it the retries
// would occupy a processor.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

// Opens `acceptor` on one address of `endpoint`: an IPv4 address if there is one. Port 0 picks a
// free port. Returns AlreadyExists if the port is in use, InvalidArgument if the host has no
// address; both name `flag`.
absl::Status listen_on(std::string_view flag, const Endpoint& endpoint,
                       boost::asio::ip::tcp::acceptor& acceptor);

}  // namespace muster::daemon

// Listening on TCP, with errors that say which flag to change.
#pragma once

#include <string_view>

#include <absl/status/status.h>
#include <boost/asio/ip/tcp.hpp>

#include "common/time.h"
#include "daemon/endpoint.h"

namespace muster::daemon {

// When accept fails (out of descriptors), trying again at once would spin.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

// Opens `acceptor` on one address of `endpoint`, an IPv4 one if it has any; port 0 takes a free one. AlreadyExists when the port is in use, InvalidArgument when
// the host has no address; both name `flag`.
absl::Status listen_on(std::string_view flag, const Endpoint& endpoint,
                       boost::asio::ip::tcp::acceptor& acceptor);

}  // namespace muster::daemon

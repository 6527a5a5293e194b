// The connection of a simulated worker.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

namespace muster::bench {

// Returns a channel with a connection of its own. `credentials`: null without TLS.
std::shared_ptr<grpc::Channel> make_channel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace muster::bench

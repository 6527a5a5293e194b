#include "bench/swarm/channel.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <optional>

#include <grpcpp/create_channel_posix.h>

#include "daemon/limits.h"

namespace muster::bench {
namespace {

// Returns the socket of a connection that is being opened; nullopt if the address is not numeric.
std::optional<int> connect_to(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  if (inet_pton(AF_INET, address.substr(0, colon).c_str(), &peer.sin_addr) != 1)
    return std::nullopt;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // An error shows when gRPC uses the socket.
  (void)connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer));
  return fd;
}

}  // namespace

std::shared_ptr<grpc::Channel> make_channel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_CHANNELZ, 0);
  arguments.SetInt(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0);
  arguments.SetMaxReceiveMessageSize(daemon::kMessageBytesMax);
  if (credentials != nullptr) return grpc::CreateCustomChannel(address, credentials, arguments);
  if (const std::optional<int> socket = connect_to(address))
    return grpc::CreateCustomInsecureChannelFromFd(address, *socket, arguments);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace muster::bench

#include "coordinator/shell/grpc/unread.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <optional>
#include <string_view>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <boost/asio/ip/tcp.hpp>

namespace muster::coordinator {
namespace {

using boost::asio::ip::tcp;

// Returns the address as gRPC writes it, without the scheme.
std::string text_of(const tcp::endpoint& endpoint) {
  const boost::asio::ip::address address = endpoint.address();
  if (address.is_v4()) return absl::StrCat(address.to_string(), ":", endpoint.port());
  if (address.to_v6().is_v4_mapped()) {
    const auto v4 = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
    return absl::StrCat(v4.to_string(), ":", endpoint.port());
  }
  return absl::StrCat("[", address.to_string(), "]:", endpoint.port());
}

// Removes the scheme, and the escapes of brackets and percent signs.
std::string text_of(std::string_view peer) {
  const size_t colon = peer.find(':');
  if (colon == std::string_view::npos) return "";
  return absl::StrReplaceAll(absl::string_view(peer.data() + colon + 1, peer.size() - colon - 1),
                             {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

std::optional<std::string> peer_of(int descriptor) {
  tcp::endpoint endpoint;
  auto size = static_cast<socklen_t>(endpoint.capacity());
  if (getpeername(descriptor, endpoint.data(), &size) != 0) return std::nullopt;
  const int family = endpoint.data()->sa_family;
  if (family != AF_INET && family != AF_INET6) return std::nullopt;
  endpoint.resize(size);
  return text_of(endpoint);
}

}  // namespace

void OpenConnections::add(int descriptor) {
  std::optional<std::string> peer = peer_of(descriptor);
  if (!peer) return;
  const auto index = static_cast<size_t>(descriptor);
  const std::lock_guard lock(mutex_);
  if (peers_.size() <= index) peers_.resize(index + 1);
  const auto earlier = descriptors_.find(peers_[index]);
  if (earlier != descriptors_.end() && earlier->second == descriptor) descriptors_.erase(earlier);
  descriptors_.insert_or_assign(*peer, descriptor);
  peers_[index] = *std::move(peer);
}

bool OpenConnections::has_unread(const std::string& peer) const {
  const std::string text = text_of(std::string_view(peer));
  int descriptor = -1;
  {
    const std::lock_guard lock(mutex_);
    const auto found = descriptors_.find(text);
    if (found == descriptors_.end()) return false;
    descriptor = found->second;
  }
  int bytes = 0;
  if (ioctl(descriptor, FIONREAD, &bytes) != 0 || bytes <= 0) return false;
  return peer_of(descriptor) == text;
}

}  // namespace muster::coordinator

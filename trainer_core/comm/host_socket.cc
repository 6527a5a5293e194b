#include "trainer_core/comm/host_socket.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster::trainer {
namespace {

// The length of the queue of pending connections: more than the ranks of a host.
constexpr int kBacklog = 1024;

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

// Returns the address of a name in Linux's abstract namespace, which begins with a NUL and has no
// file.
Address address_of(const std::string& name) {
  Address result;
  result.address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof(result.address.sun_path) - 1);
  std::memcpy(result.address.sun_path + 1, name.data(), bytes);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return result;
}

absl::StatusOr<Descriptor> make_socket(int flags = 0) {
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd.valid()) return errno_status(errno, "a Unix socket");
  return fd;
}

bool is_of_this_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == geteuid();
}

absl::Status has_closed() {
  return absl::UnavailableError("a process of this host closed its connection");
}

// A message with room for one descriptor, in the layout of sendmsg() and recvmsg().
struct Packet {
  explicit Packet(int32_t number_to_send = 0) : number(number_to_send) {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;

  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  int32_t number;
  iovec data{&number, sizeof(number)};
  msghdr message{};
};

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<HostListener> HostListener::open() {
  std::array<char, 16> random{};  // makes the name unique
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return errno_status(errno, "getrandom");
  const std::string name = absl::StrCat(
      "muster-", absl::BytesToHexString(absl::string_view(random.data(), random.size())));
  auto fd = make_socket(SOCK_NONBLOCK);
  if (!fd.ok()) return fd.status();
  const Address own = address_of(name);
  if (bind(fd->get(), reinterpret_cast<const sockaddr*>(&own.address), own.length) != 0 ||
      listen(fd->get(), kBacklog) != 0) {
    return errno_status(errno, "listening on a Unix socket");
  }
  return HostListener(name, std::move(*fd));
}

Descriptor HostListener::accept() const {
  Descriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return connection.valid() && is_of_this_user(connection) ? std::move(connection) : Descriptor();
}

absl::StatusOr<Descriptor> connect_to_listener(const std::string& name, Instant deadline) {
  auto fd = make_socket();
  if (!fd.ok()) return fd.status();
  // The maximum time for which connect() blocks if the listener's queue is full; 0 would be
  // unlimited.
  const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - monotonic_now());
  if (left.count() <= 0) return absl::DeadlineExceededError("no time is left to connect");
  const timeval wait{.tv_sec = left.count() / 1'000'000, .tv_usec = left.count() % 1'000'000};
  const Address peer = address_of(name);
  if (setsockopt(fd->get(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) != 0 ||
      connect(fd->get(), reinterpret_cast<const sockaddr*>(&peer.address), peer.length) != 0) {
    if (errno == EAGAIN)
      return absl::DeadlineExceededError("a process of this host does not accept connections");
    return errno_status(errno, "connecting to a process of this host");
  }
  if (!is_of_this_user(*fd)) return absl::PermissionDeniedError("it is another user's process");
  return fd;
}

absl::Status send_message(const Descriptor& socket, int32_t number, int descriptor) {
  Packet packet(number);
  cmsghdr* const header = CMSG_FIRSTHDR(&packet.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  if (sendmsg(socket.get(), &packet.message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(number))
    return absl::OkStatus();
  return errno == EPIPE ? has_closed() : errno_status(errno, "sending to a process of this host");
}

absl::StatusOr<HostMessage> receive_message(const Descriptor& socket) {
  Packet packet;
  const ssize_t got = recvmsg(socket.get(), &packet.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  HostMessage result{.number = packet.number, .descriptor = {}};
  const cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(&packet.message) : nullptr;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    result.descriptor = Descriptor(fd);
  }
  if (got != sizeof(packet.number) || !result.descriptor.valid()) return has_closed();
  return result;
}

bool is_closed(const Descriptor& socket) {
  pollfd wanted{socket.get(), POLLIN | POLLRDHUP, 0};
  return poll(&wanted, 1, 0) > 0;
}

}  // namespace muster::trainer

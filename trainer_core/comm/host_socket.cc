#include "trainer_core/comm/host_socket.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include "common/errno_status.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;

// More than the ranks of a host that connect at the same time.
constexpr int kBacklog = 1024;

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

// An abstract name: a NUL comes first, and there is no file.
Address address_of(const std::string& name) {
  Address result;
  result.address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof(result.address.sun_path) - 1);
  std::memcpy(result.address.sun_path + 1, name.data(), bytes);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return result;
}

absl::StatusOr<Descriptor> make_socket() {
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno_status(errno, "a Unix socket");
  return fd;
}

bool is_of_this_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == geteuid();
}

absl::Status wait_readable(const Descriptor& socket, milliseconds timeout) {
  pollfd wanted{socket.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&wanted, 1, static_cast<int>(timeout.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready > 0) return absl::OkStatus();
  return absl::DeadlineExceededError("a process of this host does not answer");
}

union ControlBuffer {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<HostListener> HostListener::open() {
  std::array<char, 16> random{};  // nobody else has the name by chance
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return errno_status(errno, "getrandom");
  const std::string name = absl::StrCat(
      "muster-", absl::BytesToHexString(absl::string_view(random.data(), random.size())));
  auto fd = make_socket();
  if (!fd.ok()) return fd.status();
  const Address own = address_of(name);
  if (bind(fd->get(), reinterpret_cast<const sockaddr*>(&own.address), own.length) != 0 ||
      listen(fd->get(), kBacklog) != 0) {
    return errno_status(errno, "listening on a Unix socket");
  }
  return HostListener(name, std::move(*fd));
}

absl::StatusOr<Descriptor> HostListener::accept(milliseconds timeout) const {
  while (true) {
    if (auto status = wait_readable(socket_, timeout); !status.ok()) return status;
    Descriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.valid()) return errno_status(errno, "accepting on a Unix socket");
    if (is_of_this_user(connection)) return connection;
  }
}

absl::StatusOr<Descriptor> connect_to_listener(const std::string& name) {
  auto fd = make_socket();
  if (!fd.ok()) return fd.status();
  const Address peer = address_of(name);
  if (connect(fd->get(), reinterpret_cast<const sockaddr*>(&peer.address), peer.length) != 0)
    return errno_status(errno, "connecting to a process of this host");
  if (!is_of_this_user(*fd)) return absl::PermissionDeniedError("it is another user's process");
  return fd;
}

absl::Status send_message(const Descriptor& socket, int32_t number, int descriptor) {
  iovec data{&number, sizeof(number)};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  if (sendmsg(socket.get(), &message, MSG_NOSIGNAL) != sizeof(number))
    return errno_status(errno, "sending to a process of this host");
  return absl::OkStatus();
}

absl::StatusOr<HostMessage> receive_message(const Descriptor& socket, milliseconds timeout) {
  if (auto status = wait_readable(socket, timeout); !status.ok()) return status;
  HostMessage result;
  iovec data{&result.number, sizeof(result.number)};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t got = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    result.descriptor = Descriptor(fd);
  }
  if (got != sizeof(result.number) || !result.descriptor.valid())
    return absl::UnavailableError("a process of this host closed its connection");
  return result;
}

bool is_closed(const Descriptor& socket) {
  pollfd wanted{socket.get(), POLLIN | POLLRDHUP, 0};
  return poll(&wanted, 1, 0) > 0;
}

}  // namespace muster::trainer

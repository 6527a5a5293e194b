#include "trainer_core/comm/rendezvous_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/job/rendezvous_wire.h"
#include "common/text/absl_view.h"
#include "common/time/time.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetryPause{20};
// The time that the network and the store may add to the wait of a GET.
constexpr milliseconds kAnswerMargin{5000};

struct HostPort {
  std::string host;
  std::string port;
};

absl::StatusOr<HostPort> split_address(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous address \"", address, "\" is not host:port"));
  }
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return HostPort{host, address.substr(colon + 1)};
}

// Returns 0 once the socket is connected, or the error; ETIMEDOUT at the deadline. The kernel alone
// would try for two minutes to reach a host that does not answer.
int connect_until(int fd, const addrinfo& address, Instant deadline) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd poll_fd{fd, POLLOUT, 0};
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - monotonic_now());
    const int ready = poll(&poll_fd, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready == 0) return ETIMEDOUT;
    if (ready < 0 && errno != EINTR) return errno;
    if (ready > 0) break;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// Returns a connected, blocking socket, or -1 with errno. The candidates share the time until the
// deadline, because only one of several addresses of a host may be reachable.
int try_connect(const addrinfo* candidates, Instant deadline) {
  int left = 0;
  for (const addrinfo* a = candidates; a != nullptr; a = a->ai_next) ++left;
  for (const addrinfo* a = candidates; a != nullptr; a = a->ai_next, --left) {
    const int fd =
        socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) continue;
    const Instant now = monotonic_now();
    const int error = connect_until(fd, *a, now + (deadline - now) / left);
    if (error == 0) {
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      return fd;
    }
    close(fd);
    errno = error;
  }
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousClient>> RendezvousClient::connect(
    const std::string& address, milliseconds timeout) {
  auto parts = split_address(address);
  if (!parts.ok()) return parts.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* candidates = nullptr;
  if (const int error = getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &candidates);
      error != 0) {
    return absl::UnavailableError(
        absl::StrCat("rendezvous address ", address, ": ", gai_strerror(error)));
  }
  absl::Cleanup free_candidates = [candidates] { freeaddrinfo(candidates); };
  const Instant deadline = monotonic_now() + timeout;
  while (true) {
    if (const int fd = try_connect(candidates, deadline); fd >= 0)
      return absl::WrapUnique(new RendezvousClient(address, fd));
    if (monotonic_now() >= deadline) {
      return absl::UnavailableError(
          absl::StrCat("no rendezvous store at ", address, ": ", std::strerror(errno)));
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

RendezvousClient::~RendezvousClient() { close(fd_); }

absl::Status RendezvousClient::set(std::string_view key, std::string_view value) {
  bool accepted = false;
  auto answer = exchange(rendezvous::encode_request(rendezvous::Op::kSet, key, value),
                         kAnswerMargin, &accepted);
  if (!answer.ok()) return answer.status();
  return accepted ? absl::OkStatus()
                  : absl::UnavailableError(
                        absl::StrCat("rendezvous store ", address_, " refused a key: ", *answer));
}

absl::StatusOr<std::string> RendezvousClient::get(std::string_view key, milliseconds wait) {
  bool accepted = false;
  const std::string frame =
      rendezvous::encode_request(rendezvous::Op::kGet, key, std::to_string(wait.count()));
  auto answer = exchange(frame, wait + kAnswerMargin, &accepted);
  if (!answer.ok() || accepted) return answer;
  return absl::DeadlineExceededError(*answer);
}

absl::StatusOr<std::string> RendezvousClient::exchange(std::string_view frame, milliseconds wait,
                                                       bool* accepted) {
  if (auto status = write_all(frame); !status.ok()) return status;
  std::array<char, rendezvous::kResponseHeaderBytes> head{};
  if (auto status = read_all(head.data(), head.size(), wait); !status.ok()) return status;
  const auto header = rendezvous::decode_response_header(head);
  if (!header.ok()) return header.status();
  std::string value(header->value_bytes, '\0');
  if (auto status = read_all(value.data(), value.size(), kAnswerMargin); !status.ok())
    return status;
  *accepted = header->ok;
  return value;
}

absl::Status RendezvousClient::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0)
      return absl::UnavailableError(
          absl::StrCat("rendezvous store ", address_, ": ", std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status RendezvousClient::read_all(char* out, size_t bytes, milliseconds wait) {
  const Instant deadline = monotonic_now() + wait;
  while (bytes > 0) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - monotonic_now());
    pollfd poll_fd{fd_, POLLIN, 0};
    const int ready = poll(&poll_fd, 1, left.count() > 0 ? static_cast<int>(left.count()) : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0)
      return absl::UnavailableError(
          absl::StrCat("rendezvous store ", address_, " does not answer"));
    const ssize_t got = ::recv(fd_, out, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return absl::UnavailableError(
          absl::StrCat("rendezvous store ", address_, " closed the connection"));
    out += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer

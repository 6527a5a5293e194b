#include "worker/shell/programs/program_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster::worker {
namespace {

// Above most ports of services that people start by hand.
constexpr int32_t kFirstPort = 12'000;
// Linux's default for the begin of the ephemeral range.
constexpr int32_t kUsualEphemeral = 32'768;

// Returns the begin of the kernel's ephemeral range. If it is configured to begin below our ports,
// returns the default: then a port may be taken, which costs an attempt.
int32_t end_of_ports(const std::string& proc_root) {
  std::ifstream file(proc_root + "/sys/net/ipv4/ip_local_port_range");
  int32_t first = 0;
  const bool room = file >> first && first >= kFirstPort + kProgramPorts && first <= kPortMax;
  return room ? first : kUsualEphemeral;
}

// Returns the block's socket; -1 if another worker holds it.
int take_block(int32_t first) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = absl::StrCat("muster-program-ports-", first);
  std::copy(name.begin(), name.end(), address.sun_path + 1);  // after a NUL: abstract, no file
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return fd;
  close(fd);
  return -1;
}

// Uses SO_REUSEADDR as servers do, so that closing connections do not matter.
int try_bind(int family, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  absl::Cleanup close_fd = [fd] { close(fd); };
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  return bind(fd, address, size) == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProgramPorts>> ProgramPorts::reserve(const std::string& proc_root,
                                                                    uint64_t seed) {
  const int32_t blocks = (end_of_ports(proc_root) - kFirstPort) / kProgramPorts;
  for (int32_t i = 0; i < blocks; ++i) {
    const auto block =
        static_cast<int32_t>((seed + static_cast<uint64_t>(i)) % static_cast<uint64_t>(blocks));
    const int32_t first = kFirstPort + block * kProgramPorts;
    if (const int fd = take_block(first); fd >= 0)
      return std::unique_ptr<ProgramPorts>(new ProgramPorts(fd, {first, kProgramPorts}));
  }
  return absl::ResourceExhaustedError(absl::StrCat("other workers of this host have all ", blocks,
                                                   " blocks of ports for programs"));
}

ProgramPorts::~ProgramPorts() { close(fd_); }

absl::Status check_program_port(int32_t port) {
  if (port <= 0)
    return absl::FailedPreconditionError("its worker has no port left for a program's rank 0");
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<uint16_t>(port));
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = v4.sin_port;
  const bool taken =
      try_bind(AF_INET, reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)) == EADDRINUSE ||
      try_bind(AF_INET6, reinterpret_cast<const sockaddr*>(&v6), sizeof(v6)) == EADDRINUSE;
  if (!taken) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("port ", port, ", which was meant for rank 0, is another program's"));
}

}  // namespace muster::worker

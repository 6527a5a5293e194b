#include "worker/shell/stream/thin_streams.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <absl/cleanup/cleanup.h>
#include <absl/functional/function_ref.h>
#include <absl/strings/numbers.h>

namespace muster::worker {
namespace {

// Returns 0 if the descriptor is no IP connection.
uint16_t peer_port_of(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return 0;
  if (peer.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&peer)->sin_port);
  if (peer.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&peer)->sin6_port);
  return 0;
}

// Calls `use` with the descriptor of each connection to the port. Sockets other than TCP return
// errors there.
void for_each_connection(uint16_t peer_port, absl::FunctionRef<void(int fd)> use) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  absl::Cleanup close_folder = [&] { closedir(folder); };
  while (const dirent* entry = readdir(folder)) {
    int fd = -1;
    if (absl::SimpleAtoi(entry->d_name, &fd) && peer_port_of(fd) == peer_port) use(fd);
  }
}

}  // namespace

void repeat_evenly(uint16_t peer_port) {
  for_each_connection(peer_port, [](int fd) {
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
  });
}

bool only_retransmits(uint16_t peer_port) {
  bool some = false;
  bool all = true;
  for_each_connection(peer_port, [&](int fd) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
    const bool retransmits = info.tcpi_retransmits > 0;
    some = some || retransmits;
    all = all && retransmits;
  });
  return some && all;
}

}  // namespace muster::worker

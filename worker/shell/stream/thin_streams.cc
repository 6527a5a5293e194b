#include "worker/shell/stream/thin_streams.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <absl/cleanup/cleanup.h>
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

}  // namespace

void repeat_evenly(uint16_t peer_port) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  absl::Cleanup close_folder = [&] { closedir(folder); };
  while (const dirent* entry = readdir(folder)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd) || peer_port_of(fd) != peer_port) continue;
    const int on = 1;
    // Sockets other than TCP return an error.
    (void)setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
  }
}

}  // namespace muster::worker

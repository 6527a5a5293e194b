// The `shm` transport: ranks are processes of one host and pass messages through memory that they share.
//
// Each rank's desk (desk.h) is a memfd: memory without a name, which the kernel frees with the last process that maps it, however
// that ends. The ranks of a host connect to each other by Unix sockets to pass the memfds on, and keep the sockets open: a peer
// that was killed is known by its closed end.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/comm/host_socket.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// Of a round, and of a lane of a desk: what all ranks of a host have in their lanes should be in a cache when it is read.
constexpr size_t kShmRoundBytes = size_t{1} << 20;

// Processes that say the same can share memory: those of one boot of a kernel, one network namespace and one user. Empty where
// this process cannot tell.
std::string host_identity();

struct ShmOptions {
  int rank = 0;  // in the world
  int world_size = 1;
  std::map<int, std::string>
      listeners;  // names by world rank: the ranks of this host, this one among them
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(120);
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of one round
};

// The transport among the ranks of options.listeners. All of them call this at the same time. The error of the system where
// memory cannot be shared, Unavailable or DeadlineExceeded where a peer does not take part.
absl::StatusOr<std::shared_ptr<Transport>> connect_shm(const HostListener& listener,
                                                       const ShmOptions& options);

}  // namespace muster::trainer

// The `shm` transport: ranks are processes of one host and exchange messages through shared memory.
//
// Each rank's mailbox (mailbox.h) is a memfd: anonymous memory that the kernel frees with the last
// process that maps it, however that process ends. The ranks of a host connect by Unix sockets to
// pass the memfds, and keep the sockets open: a closed end reveals that a peer was killed.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "common/time.h"
#include "trainer_core/comm/host_socket.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// Bytes of a round, and of a mailbox slot: the slots of all ranks of a host should fit in a cache
// when they are read.
constexpr size_t kShmRoundBytes = size_t{1} << 20;

// Processes with the same identity can share memory: same boot of the kernel, network namespace and
// user. Empty if this process cannot determine it.
std::string host_identity();

// Resources of a rank before the host's ranks connect: its mailbox's memory, and a socket that
// serves it.
class ShmSeat {
 public:
  // Creates the seat of one of `ranks` ranks. Returns the system's error if memory cannot be
  // shared.
  static absl::StatusOr<ShmSeat> take(int ranks);

  const HostListener& listener() const { return listener_; }
  const Descriptor& memory() const { return memory_; }

 private:
  ShmSeat(HostListener listener, Descriptor memory)
      : listener_(std::move(listener)), memory_(std::move(memory)) {}

  HostListener listener_;
  Descriptor memory_;
};

struct ShmOptions {
  int rank = 0;  // in the world
  int world_size = 1;
  // Listener names by world rank: the ranks of this host, including this one.
  std::map<int, std::string> listeners;
  Instant deadline;  // until all have met
  std::chrono::milliseconds timeout = kRoundTimeout;
};

// Creates the transport among the ranks of options.listeners. All of them call this at the same
// time, with seats for the same number of ranks. Errors: the system's if memory cannot be mapped,
// Unavailable if a peer has given up, DeadlineExceeded naming the missing ranks. Connections from
// other processes are rejected.
absl::StatusOr<std::shared_ptr<Transport>> connect_shm(const ShmSeat& seat,
                                                       const ShmOptions& options);

}  // namespace muster::trainer

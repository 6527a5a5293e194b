// The transport `shm`: ranks are processes of one host and exchange messages through shared memory.
//
// The mailbox of each rank (mailbox.h) is a memfd: anonymous memory that the kernel frees when the
// last process that maps it ends, for any reason. The ranks of a host connect through Unix sockets
// to exchange the memfds. The sockets remain open, because a closed end reveals that a peer was
// killed.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "trainer_core/comm/host_socket.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// The maximum bytes of a round, and the bytes of a staging buffer. The buffers of all ranks of a
// host should fit in a CPU cache when they are read.
constexpr size_t kShmRoundBytes = size_t{1} << 20;

// Returns the identity of this host, as seen by this process: it consists of the kernel's boot id,
// the network namespace and the user. Processes with the same identity can share memory. Empty if
// it cannot be determined.
std::string host_identity();

// The resources that a rank creates before the ranks of the host connect: the memory of its
// mailbox, and a socket from which peers get the memory.
class ShmSeat {
 public:
  // Creates the resources for a host with `ranks` ranks. Returns the system's error if memory
  // cannot be shared.
  static absl::StatusOr<ShmSeat> take(int ranks);

  const HostListener& listener() const { return listener_; }
  const Descriptor& memory() const { return memory_; }

 private:
  ShmSeat(HostListener listener, Descriptor memory)
      : listener_(std::move(listener)), memory_(std::move(memory)) {}

  HostListener listener_;
  Descriptor memory_;
};

// The options of connect_shm().
struct ShmOptions {
  int rank = 0;  // this rank in the world
  int world_size = 1;
  // The name of each listener, by world rank: all ranks of this host, including this one.
  std::map<int, std::string> listeners;
  Instant deadline;                                   // until all ranks have connected
  std::chrono::milliseconds timeout = kRoundTimeout;  // limit of one round
  // Called several times per second while ranks are missing; an error ends the wait. May be empty.
  std::function<absl::Status()> check = {};
};

// Creates the transport among the ranks of options.listeners. All of these ranks must call it at
// the same time, with a `seat` for the same number of ranks. Returns the system's error if memory
// cannot be mapped, Unavailable if a peer has given up, and DeadlineExceeded with the missing
// ranks. Rejects connections from other processes.
absl::StatusOr<std::shared_ptr<Transport>> connect_shm(const ShmSeat& seat,
                                                       const ShmOptions& options);

}  // namespace muster::trainer

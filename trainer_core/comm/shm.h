// The `shm` transport: ranks are processes of one host and pass messages through memory that they share.
//
// Each rank's mailbox (mailbox.h) is a memfd: memory without a name, which the kernel frees with the last process that maps it, however
// that ends. The ranks of a host connect to each other by Unix sockets to pass the memfds on, and keep the sockets open: a peer
// that was killed is known by its closed end.
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

// Of a round, and of a lane of a mailbox: what all ranks of a host have in their lanes should be in a cache when it is read.
constexpr size_t kShmRoundBytes = size_t{1} << 20;

// Processes that say the same can share memory: those of one boot of a kernel, one network namespace and one user. Empty where
// this process cannot tell.
std::string host_identity();

// What a rank brings to its host's others: its mailbox's memory, and a socket at which they ask for it.
class ShmSeat {
 public:
  // Of one of `ranks` ranks. The error of the system where it cannot share memory.
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
  std::map<int, std::string>
      listeners;     // names by world rank: the ranks of this host, this one among them
  Instant deadline;  // until all have met
  std::chrono::milliseconds timeout = kRoundTimeout;
};

// The transport among the ranks of options.listeners. All of them call this at the same time, each with its seat among as many.
// The error of the system where memory cannot be mapped, Unavailable where a peer has given up, DeadlineExceeded names those who
// did not come. Whoever else connects is turned away.
absl::StatusOr<std::shared_ptr<Transport>> connect_shm(const ShmSeat& seat,
                                                       const ShmOptions& options);

}  // namespace muster::trainer

// Ports that this worker reserves for users' programs. One rank of a program listens on a port, and
// all ranks must receive the port's number before any of them runs (MASTER_PORT,
// JAX_COORDINATOR_ADDRESS).
//
// Picking a currently free port would race with other programs. These ports lie below the kernel's
// ephemeral range, so no program receives one by chance. The workers of one host (network
// namespace) divide these ports into blocks. The owner of a block holds the abstract Unix socket
// with the block's name, which the kernel releases when the worker dies. The coordinator assigns
// one port to each attempt, because it has the list of running attempts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/process/port_range.h"

namespace muster::worker {

// Number of ports of a block: more than the programs that run on a node at once, so that an attempt
// gets another port than the attempt before.
constexpr int32_t kProgramPorts = 128;

// A reserved block of ports; the destructor releases the block.
class ProgramPorts {
 public:
  // Reserves the first free block. `seed` determines the block with which the search begins.
  // Returns ResourceExhausted if no block is free.
  static absl::StatusOr<std::unique_ptr<ProgramPorts>> reserve(const std::string& proc_root,
                                                               uint64_t seed);
  ~ProgramPorts();
  ProgramPorts(const ProgramPorts&) = delete;
  ProgramPorts& operator=(const ProgramPorts&) = delete;

  PortRange range() const { return range_; }

 private:
  ProgramPorts(int fd, PortRange range) : fd_(fd), range_(range) {}

  const int fd_;
  const PortRange range_;
};

// Returns OK if a program could listen on `port` now; FailedPrecondition if `port` is 0 or another
// program listens on it.
absl::Status check_program_port(int32_t port);

}  // namespace muster::worker

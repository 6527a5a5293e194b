// Ports that this worker reserves for programs: one of their ranks listens on a port that all of
// them receive before any of them runs (MASTER_PORT, JAX_COORDINATOR_ADDRESS).
//
// Picking a currently free port would race with other programs. These ports lie below the kernel's
// ephemeral range, so no program receives one by chance. Workers of the same host (network
// namespace) divide them into blocks: the owner of a block holds the abstract Unix socket of its
// name, which the kernel releases when the worker dies. The coordinator, which has all running
// attempts, assigns each attempt one port.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/port_range.h"

namespace muster::worker {

// Above the number of concurrent programs per node, so that an attempt gets another port than its
// predecessor.
constexpr int32_t kProgramPorts = 128;

class ProgramPorts {
 public:
  // Reserves the first free block; `seed` determines where the search begins. Returns
  // ResourceExhausted if there is none.
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

// Returns OK if a program could listen on `port` now; FailedPrecondition if `port` is unset or
// another program has it.
absl::Status check_program_port(int32_t port);

}  // namespace muster::worker

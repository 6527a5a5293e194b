// Ports that this worker keeps for programs: one of their ranks listens on a port that all of them were told before any of them
// ran (MASTER_PORT, JAX_COORDINATOR_ADDRESS).
//
// Who picks a port that is free now and hopes that it will be free when the program listens, loses a race now and then. These lie
// below the range out of which the kernel gives ports to whoever asks for any, so nobody gets one by chance. Other workers of this
// host (that is, of this network namespace) keep away, because whoever has the socket of a block's name in the abstract
// namespace has the block; the kernel frees it when the worker dies. The coordinator, which knows what runs, gives each attempt one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/port_range.h"

namespace muster::worker {

// More than a node has programs at once, so that an attempt gets another port than the one before it had.
constexpr int32_t kProgramPorts = 128;

class ProgramPorts {
 public:
  // The first block that nobody has; `seed` says where to begin to look. ResourceExhausted when there is none.
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

// Whether a program could listen on it now. FailedPrecondition when there is none or another program has it.
absl::Status check_program_port(int32_t port);

}  // namespace muster::worker

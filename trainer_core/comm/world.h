// Connects the processes of a job into a world: they meet at the rendezvous store, and processes of
// one host share memory.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/comm/gloo.h"
#include "trainer_core/comm/shm.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

struct WorldOptions {
  GlooOptions gloo;  // this rank and how to reach the others; used between hosts
  // Ranks with the same `host` share memory. "": no rank shares memory, so Gloo also connects ranks
  // of one host.
  std::string host = host_identity();
  std::ostream* notes = nullptr;  // gets a line where memory cannot be shared, if there is one
};

// Returns one connected transport to all ranks: `shm` if all are on one host, Gloo if each has its
// own host, both otherwise. Gloo serves all if the ranks of a host cannot share memory. Errors as
// connect_gloo's.
absl::StatusOr<std::shared_ptr<Transport>> connect_world(const WorldOptions& options);

}  // namespace muster::trainer

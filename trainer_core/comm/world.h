// Connects the processes of a job to a world. They find each other through the rendezvous store;
// processes of one host communicate through shared memory.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/comm/gloo.h"
#include "trainer_core/comm/shm.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// The options of connect_world().
struct WorldOptions {
  GlooOptions gloo;  // this rank, and the network for connections between hosts
  // The identity of the host; ranks with the same value share memory. Empty: this rank shares no
  // memory, so it uses Gloo also within the host.
  std::string host = host_identity();
  std::ostream* notes = nullptr;  // receives a line if memory cannot be shared; null: none
};

// Returns a transport that connects all ranks: `shm` if all ranks are on one host, `gloo` if each
// rank has its own host, otherwise both (hybrid_transport.h). Ranks that cannot share memory use
// Gloo also within their host. Returns the errors of connect_gloo().
absl::StatusOr<std::shared_ptr<Transport>> connect_world(const WorldOptions& options);

}  // namespace muster::trainer

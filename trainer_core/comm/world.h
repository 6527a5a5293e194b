// How the processes of a job become a world: they meet at the rendezvous store, and those of one host share memory.
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
  GlooOptions gloo;  // who this is and where the others are; used between hosts
  // Ranks that say the same share memory; "": with nobody, so that Gloo serves ranks of one host, too.
  std::string host = host_identity();
  std::ostream* notes = nullptr;  // gets a line where memory cannot be shared, if there is one
};

// One transport to all ranks, connections made: `shm` where all are on one host, Gloo where each has a host of its own, both
// otherwise. Where the ranks of a host cannot share memory, Gloo serves all. Errors as connect_gloo's.
absl::StatusOr<std::shared_ptr<Transport>> connect_world(const WorldOptions& options);

}  // namespace muster::trainer

// Runs a benchmark's ranks as processes of this machine.
#pragma once

#include <string>
#include <vector>

namespace muster::trainer {

// Starts this program once for each rank, and waits for all ranks. The arguments of each are
// `arguments`, the rank's number and the address of a rendezvous store. Returns 0 if every rank
// exits with 0.
int spawn_ranks(int ranks, std::vector<std::string> arguments);

}  // namespace muster::trainer

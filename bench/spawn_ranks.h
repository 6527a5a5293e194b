// Ranks of a benchmark as processes of this machine.
#pragma once

#include <string>
#include <vector>

namespace muster::trainer {

// Starts this program once for each rank, with `arguments`, the rank's number and the address of a
// rendezvous store, and waits for all. Returns 0 if every rank exits with 0.
int spawn_ranks(int ranks, std::vector<std::string> arguments);

}  // namespace muster::trainer

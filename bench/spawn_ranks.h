// Ranks of a benchmark as processes of this machine.
#pragma once

#include <string>
#include <vector>

namespace muster::trainer {

// Starts this program once for each rank, with `arguments`, the rank's number and the address of a rendezvous store, and waits for
// all. The exit code: 0 if that of each was.
int spawn_ranks(int ranks, std::vector<std::string> arguments);

}  // namespace muster::trainer

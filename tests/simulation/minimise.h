// Finds a short simulation that fails as a long one does.
#pragma once

#include <cstdint>
#include <string>

#include "tests/simulation/world.h"

namespace muster::simulation {

// Runs the simulation of a seed. Returns "" if all invariants held. Otherwise removes submissions
// and faults for as long as the same invariant fails, within a bounded number of runs, and returns
// the shortest run's violation, its event log and the command that replays it. `workers`: their
// number; 0: drawn from the seed.
std::string failure_of_seed(uint64_t seed, int workers, Faults faults = Faults::kAll);

}  // namespace muster::simulation

// A world over several hosts: ranks of one host by shared memory, others by the network. Internal to comm.
#pragma once

#include <memory>
#include <vector>

#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// `near` reaches the ranks of this host, and is null where there is one; `far` reaches all. `hosts` by world rank, the same numbers
// on each. A round goes through `far` first and then through `near`, on all ranks, so that no two wait crosswise. Reduction by
// levels has no rounds that take both.
std::shared_ptr<Transport> make_hybrid(std::shared_ptr<Transport> near,
                                       std::shared_ptr<Transport> far, std::vector<int> hosts);

}  // namespace muster::trainer

// A world over several hosts: ranks of one host use shared memory, others the network. Internal to
// comm.
#pragma once

#include <memory>
#include <vector>

#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// `near` reaches the ranks of this host and is null if there is only this one; `far` reaches all.
// `hosts`, by world rank, is the same on every rank. A round uses `far` first and then `near` on
// all ranks, so it cannot deadlock. Hierarchical reductions have no rounds that use both.
std::shared_ptr<Transport> make_hybrid(std::shared_ptr<Transport> near,
                                       std::shared_ptr<Transport> far, std::vector<int> hosts);

}  // namespace muster::trainer

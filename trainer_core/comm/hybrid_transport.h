// A world over several hosts: ranks of one host use shared memory, others the network. Internal to
// comm.
#pragma once

#include <memory>
#include <vector>

#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// Returns a transport that uses `shm` between ranks of the same host and `network` between hosts.
// `shm` connects the ranks of this host; null: this rank is alone on it. `network` connects all
// ranks. `hosts` has the host of each world rank and is the same on every rank. Every rank does the
// network's part of a round before that of shared memory, so a round cannot deadlock; hierarchical
// reductions have no rounds that use both.
std::shared_ptr<Transport> make_hybrid(std::shared_ptr<Transport> shm,
                                       std::shared_ptr<Transport> network, std::vector<int> hosts);

}  // namespace muster::trainer

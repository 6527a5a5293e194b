// Runs a mesh whose ranks are threads.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "trainer_core/comm/local.h"
#include "trainer_core/comm/process_groups.h"

namespace muster::trainer {

// Wraps the transport of a rank.
using TransportOf = std::function<std::shared_ptr<Transport>(std::shared_ptr<Transport>)>;

// Runs `body` on a thread per rank, with the process groups of the rank. `transport_of` wraps the
// transport of each rank; empty: no wrapper. `memory` is the device memory that groups accept in
// addition to host memory.
inline void on_mesh(const Mesh& mesh, const std::function<void(ProcessGroups&)>& body,
                    const TransportOf& transport_of = nullptr,
                    const DeviceMemory& memory = host_memory()) {
  const LocalWorld world(mesh.ranks(), std::chrono::milliseconds(20'000));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      const std::shared_ptr<Transport> transport = world.join(rank);
      ProcessGroups groups(transport_of ? transport_of(transport) : transport, mesh, nullptr,
                           memory);
      body(groups);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace muster::trainer

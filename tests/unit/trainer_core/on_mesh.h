// A mesh whose ranks are threads.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "trainer_core/comm/local.h"
#include "trainer_core/comm/process_groups.h"

namespace muster::trainer {

// Runs `body` with all groups of each rank, on its own thread.
inline void on_mesh(const Mesh& mesh, const std::function<void(ProcessGroups&)>& body) {
  const LocalWorld world(mesh.ranks(), std::chrono::milliseconds(20'000));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      ProcessGroups groups(world.join(rank), mesh, nullptr);
      body(groups);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace muster::trainer

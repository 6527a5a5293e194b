// State of the emulated device's CUDA graphs, for tests.
#pragma once

#include <atomic>
#include <cstdint>

namespace emulated {

struct Graphs {
  // The backend captures a run's calls again before each replay; the process ends if the calls or
  // their arguments differ.
  std::atomic<bool> are_compared = true;
  // Every capture fails, as with a driver that refuses it.
  std::atomic<bool> are_refused = false;

  std::atomic<int64_t> destroyed = 0;
  std::atomic<int64_t> held = 0;      // graphs that exist, plus their nodes
  std::atomic<int64_t> launches = 0;  // launches of graphs
  // Kernels and copies enqueued individually.
  std::atomic<int64_t> enqueued = 0;
};
Graphs& graphs();

}  // namespace emulated

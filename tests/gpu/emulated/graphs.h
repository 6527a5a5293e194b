// Settings and counters of the emulated device's CUDA graphs, for tests.
#pragma once

#include <atomic>
#include <cstdint>

namespace emulated {

struct Graphs {
  // True: before each replay of a run the backend captures its calls again, and the process ends if
  // the calls or their arguments differ.
  std::atomic<bool> are_compared = true;
  // True: every capture fails, as with a driver that refuses captures.
  std::atomic<bool> are_refused = false;

  std::atomic<int64_t> destroyed = 0;
  std::atomic<int64_t> held = 0;      // number of existing graphs plus their nodes
  std::atomic<int64_t> launches = 0;  // number of launched graphs
  // number of kernels and copies that were enqueued outside of graphs
  std::atomic<int64_t> enqueued = 0;
};
Graphs& graphs();

}  // namespace emulated

// What the emulated device knows of CUDA graphs, for tests.
#pragma once

#include <atomic>
#include <cstdint>

namespace emulated {

struct Graphs {
  // The backend captures a run's calls again each time that it replays them, and the process ends where they are others or have other arguments.
  std::atomic<bool> are_compared = true;
  // Nothing can be captured, as by a driver that refuses it.
  std::atomic<bool> are_refused = false;

  std::atomic<int64_t> destroyed = 0;
  std::atomic<int64_t> held = 0;      // graphs that are there, and what is in them
  std::atomic<int64_t> launches = 0;  // of graphs
  std::atomic<int64_t> told = 0;      // kernels and copies that streams were told one by one
};
Graphs& graphs();

}  // namespace emulated

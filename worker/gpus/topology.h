// The topology of a node's devices, from hwloc: the CPUs that are near a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::worker {

struct DevicePlace {
  int32_t numa_node = -1;     // the system's number; -1: unknown, or a single NUMA node
  std::vector<int32_t> cpus;  // of that NUMA node; empty: unknown
};

// Not thread-safe. Construction takes some tens of milliseconds.
class Topology {
 public:
  // Loads this machine's topology, or the one in an hwloc XML file. Whatever cannot be read is
  // unknown.
  explicit Topology(const std::string& xml_path = "");
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  DevicePlace place_of_pci(unsigned domain, unsigned bus, unsigned device) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::worker

// Where a node's devices are plugged in, by hwloc: which CPUs are near a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::worker {

struct DevicePlace {
  int32_t numa_node = -1;     // the system's number; -1: not known, or there is one node alone
  std::vector<int32_t> cpus;  // of that node; empty: not known
};

// One thread. Reading it takes some tens of milliseconds.
class Topology {
 public:
  // Of this machine, or of the one that an XML file of hwloc's describes. What cannot be read is not known.
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

// Finds the CPUs that are near a GPU, with the library hwloc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::worker {

// The NUMA node to which a device is attached.
struct DevicePlace {
  // the operating system's number; -1: unknown, or the machine has a single NUMA node
  int32_t numa_node = -1;
  std::vector<int32_t> cpus;  // CPUs of the NUMA node; empty: unknown
};

// The topology of one machine. Not thread-safe. Construction takes some tens of milliseconds.
class Topology {
 public:
  // Loads the topology of this machine if `xml_path` is empty, else the topology in that hwloc XML
  // file. If loading fails, all devices have unknown places.
  explicit Topology(const std::string& xml_path = "");
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  // Returns the place of the device with this PCI address.
  DevicePlace place_of_pci(unsigned domain, unsigned bus, unsigned device) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::worker

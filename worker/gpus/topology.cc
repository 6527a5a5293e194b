#include "worker/gpus/topology.h"

#include <hwloc.h>

namespace muster::worker {

struct Topology::Impl {
  hwloc_topology_t topology = nullptr;
  bool is_loaded = false;
};

Topology::Topology(const std::string& xml_path) : impl_(std::make_unique<Impl>()) {
  if (hwloc_topology_init(&impl_->topology) != 0) {
    impl_->topology = nullptr;
    return;
  }
  hwloc_topology_set_io_types_filter(impl_->topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // Other plugins would search CUDA, NVML and X11 devices besides PCI.
  hwloc_topology_set_type_filter(impl_->topology, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_NONE);
  const bool has_source =
      xml_path.empty() || hwloc_topology_set_xml(impl_->topology, xml_path.c_str()) == 0;
  impl_->is_loaded = has_source && hwloc_topology_load(impl_->topology) == 0;
}

Topology::~Topology() {
  if (impl_->topology != nullptr) hwloc_topology_destroy(impl_->topology);
}

DevicePlace Topology::place_of_pci(unsigned domain, unsigned bus, unsigned device) const {
  DevicePlace place;
  if (!impl_->is_loaded || hwloc_get_nbobjs_by_type(impl_->topology, HWLOC_OBJ_NUMANODE) < 2)
    return place;
  const hwloc_obj_t pci = hwloc_get_pcidev_by_busid(impl_->topology, domain, bus, device, 0);
  if (pci == nullptr) return place;
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(impl_->topology, pci);
  // A device attached to the whole machine is equally near to all nodes.
  if (near == nullptr || near->nodeset == nullptr || hwloc_bitmap_weight(near->nodeset) != 1)
    return place;
  place.numa_node = hwloc_bitmap_first(near->nodeset);
  for (int cpu = hwloc_bitmap_first(near->cpuset); cpu >= 0;
       cpu = hwloc_bitmap_next(near->cpuset, cpu)) {
    place.cpus.push_back(cpu);
  }
  return place;
}

}  // namespace muster::worker

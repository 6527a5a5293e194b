#include "daemon/gpu_messages.h"

#include "common/text/escape.h"

namespace muster::daemon {

Gpu gpu_from_proto(const v1::Gpu& proto) {
  return {.index = proto.index(),
          .uuid = printable(proto.uuid(), kGpuTextBytesMax),
          .name = printable(proto.name(), kGpuTextBytesMax),
          .memory_bytes = proto.memory_bytes(),
          .numa_node = proto.numa_node()};
}

void gpu_to_proto(const Gpu& gpu, v1::Gpu& proto) {
  proto.set_index(gpu.index);
  proto.set_uuid(gpu.uuid);
  proto.set_name(gpu.name);
  proto.set_memory_bytes(gpu.memory_bytes);
  proto.set_numa_node(gpu.numa_node);
}

}  // namespace muster::daemon

// The memory that the ranks of a node will map, and the size of their checkpoints, computed from
// the config alone. On a CPU that is everything; with GPUs it is the host's part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/mesh.h"
#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The memory of a rank in addition to its plan: program and libraries, stacks of threads, the
// panels that a GEMM packs, and the block that a collective exchanges. It was observed to be 45 to
// 60 MiB.
constexpr size_t kLibraryBytes = size_t{64} << 20;

// The memory that the ranks of a node will map.
struct NodeMemory {
  size_t bytes = 0;          // without the next two fields
  size_t staging_bytes = 0;  // for background checkpoints
  size_t local_bytes = 0;    // for local checkpoints, in memory-backed storage
  int32_t ranks = 0;
  int32_t largest_rank = 0;  // rank that needs the most memory
  size_t largest_bytes = 0;
  size_t smallest_bytes = std::numeric_limits<size_t>::max();

  size_t total() const { return bytes + staging_bytes + local_bytes; }
  // Adds a rank, of whose plan `device_bytes` are on a device.
  void add(int32_t rank, const MemoryPlan& plan, size_t device_bytes);
  // Returns "4 ranks of 12 MiB".
  std::string describe() const;
};

// Returns the node that needs the most memory. Ranks differ because of uneven shares, the ends of a
// pipeline, and writers.
NodeMemory largest_node(const TrainConfig& config, const Mesh& mesh);

// Returns the size of the part of a checkpoint that each node's ranks write.
std::vector<size_t> saved_bytes_by_node(const TrainConfig& config, const Mesh& mesh);
// Returns the bytes of the local checkpoints on each node: two saves at a time, each with the files
// of the node's own writers and copies of the files of the previous node.
std::vector<size_t> local_bytes_by_node(const TrainConfig& config, const Mesh& mesh);

// Returns the size of the parameters and the optimizer's state in a checkpoint, whatever the mesh.
size_t checkpoint_bytes(const TrainConfig& config);

}  // namespace muster::trainer

// Computes the memory that the ranks of a node will map, and the size of their checkpoints, from
// the config alone. For ranks on CPUs this is all of their memory; for ranks on GPUs, their host
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/job/mesh.h"
#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The memory of a rank in addition to its plan: program and libraries, stacks of threads, the
// panels that a GEMM packs, and the block that a collective exchanges. 45 to 60 MiB were observed.
constexpr size_t kLibraryBytes = size_t{64} << 20;

// The memory that the ranks of a node will map.
struct NodeMemory {
  size_t bytes = 0;          // all memory except that of the next two fields
  size_t staging_bytes = 0;  // for background checkpoints
  size_t local_bytes = 0;    // for local checkpoints, in memory-backed storage
  int32_t ranks = 0;
  int32_t largest_rank = 0;  // the rank that needs the most memory
  size_t largest_bytes = 0;
  size_t smallest_bytes = std::numeric_limits<size_t>::max();

  size_t total() const { return bytes + staging_bytes + local_bytes; }
  // Adds a rank with this plan, of which `device_bytes` are device memory.
  void add(int32_t rank, const MemoryPlan& plan, size_t device_bytes);
  // Returns "4 ranks of 12 MiB".
  std::string describe() const;
};

// Returns the memory of the node that needs the most. Ranks differ because shares may be uneven,
// the first and the last pipeline stage have additional parameters, and only some ranks write
// checkpoints.
NodeMemory largest_node(const TrainConfig& config, const Mesh& mesh);

// Returns the size of the part of a checkpoint that each node's ranks write.
std::vector<size_t> saved_bytes_by_node(const TrainConfig& config, const Mesh& mesh);
// Returns the bytes of the local checkpoints on each node. A node has up to two saves at a time,
// each with the files of its own writers and copies of the files of the previous node.
std::vector<size_t> local_bytes_by_node(const TrainConfig& config, const Mesh& mesh);

// Returns the size of the parameters and the optimizer's state in a checkpoint, whatever the mesh.
size_t checkpoint_bytes(const TrainConfig& config);

}  // namespace muster::trainer

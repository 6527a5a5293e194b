// An all-reduce between nodes, which verifies its sums and measures the bandwidth: a node's part
// in the search for a bad node or pair. With GPUs it uses NCCL, as training does, with one process
// per device; otherwise TCP, also between nodes that share a host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>

#include "trainer_core/ops/backend.h"
#include "trainer_core/startup/deep_check.h"

namespace muster::trainer {

// This process in the group. Ranks of one node are consecutive.
struct GroupSeat {
  int32_t node = 0;     // the number of this node
  int32_t nodes = 2;    // their number
  int32_t device = 0;   // the number of this device in its node
  int32_t devices = 1;  // their number on each node
  std::string rendezvous{};
  std::string bind_address{};
  uint32_t id = 0;  // scope of the keys in the rendezvous store
};

// Runs all-reduces for about `seconds` and appends "all_reduce": the bandwidth at which each rank
// sends, as NCCL's tests define it (bus bandwidth), which hardly depends on the number of ranks.
// Returns DataLoss if a sum is wrong, and the errors of the transport, which name missing peers.
// Blocks for a peer for at most 20 s, and 50 ms more for each rank.
absl::Status test_group(const std::shared_ptr<Backend>& backend, const GroupSeat& seat,
                        double seconds, DeepMeasurements& measured);

}  // namespace muster::trainer

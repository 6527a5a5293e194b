// Adds the per-tensor sums of an optimizer (optim/optimizer.h) over the process groups of a mesh.
#pragma once

#include <span>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/comm/process_groups.h"
#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {

// A SumExchange over the groups of a mesh. Called on the thread of these groups only.
class GroupSums : public SumExchange {
 public:
  // `groups` must outlive this object.
  explicit GroupSums(ProcessGroups& groups) : groups_(groups) {}

  // Requires nonnegative sums of fp32 values or of their squares. They are sent as fp32 pairs
  // (split_wide), which cannot overflow and preserve about 45 bits.
  absl::Status add_up(const GroupAxes& group, std::span<double> sums) override;

 private:
  ProcessGroups& groups_;
  std::vector<float> split_;
};

}  // namespace muster::trainer

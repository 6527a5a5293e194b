// What optimizers sum over tensors (optim/optimizer.h), added up through the process groups of a mesh.
#pragma once

#include <span>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/comm/process_groups.h"
#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {

// One thread, that of the groups.
class GroupSums : public SumExchange {
 public:
  // `groups` outlives this.
  explicit GroupSums(ProcessGroups& groups) : groups_(groups) {}

  // Sums of at least 0, of fp32 numbers or their squares: none is too large to travel, and about 45 bits arrive.
  absl::Status add_up(const GroupAxes& group, std::span<double> sums) override;

 private:
  ProcessGroups& groups_;
  std::vector<float> split_;
};

}  // namespace muster::trainer

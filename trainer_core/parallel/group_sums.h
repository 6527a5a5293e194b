// Sums an optimizer's per-tensor statistics (optim/optimizer.h) over the process groups of a mesh.
#pragma once

#include <span>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/comm/process_groups.h"
#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {

// Called on the groups' thread only.
class GroupSums : public SumExchange {
 public:
  // `groups` must outlive this.
  explicit GroupSums(ProcessGroups& groups) : groups_(groups) {}

  // Requires nonnegative sums of fp32 values or of their squares. No such sum overflows in transit,
  // and about 45 bits of precision arrive.
  absl::Status add_up(const GroupAxes& group, std::span<double> sums) override;

 private:
  ProcessGroups& groups_;
  std::vector<float> split_;
};

}  // namespace muster::trainer

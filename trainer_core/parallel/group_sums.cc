#include "trainer_core/parallel/group_sums.h"

#include <algorithm>

#include "trainer_core/comm/exact_floats.h"

namespace muster::trainer {

absl::Status GroupSums::add_up(const GroupAxes& group, std::span<double> sums) {
  const size_t parts = split_wide(0).size();
  split_.resize(parts * sums.size());
  for (size_t i = 0; i < sums.size(); ++i)
    std::ranges::copy(split_wide(sums[i]), split_.begin() + static_cast<ptrdiff_t>(parts * i));
  if (auto status = groups_.of(group).all_reduce(split_, "optimizer sums"); !status.ok())
    return status;
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = join_wide(std::span(split_).subspan(parts * i, parts));
  return absl::OkStatus();
}

}  // namespace muster::trainer

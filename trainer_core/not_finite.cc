#include "trainer_core/not_finite.h"

#include <array>
#include <cmath>

#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

std::string name_ranks(const char* what, int bad_ranks, int bad_rank_sum, int size) {
  if (bad_ranks == 1) return absl::StrCat("the ", what, " of rank ", bad_rank_sum);
  return absl::StrCat("the ", what, " of ", bad_ranks, " of ", size, " ranks");
}

}  // namespace

std::string name_not_finite(ProcessGroup& group, const StepTail& reduced,
                            const std::function<double()>& own_gradient_norm) {
  if (reduced.bad_ranks > 0)
    return name_ranks("loss", reduced.bad_ranks, reduced.bad_rank_sum, group.size());
  const bool bad = !std::isfinite(own_gradient_norm());
  std::array<float, 2> votes = {bad ? 1.0F : 0.0F, bad ? static_cast<float>(group.rank()) : 0.0F};
  const absl::Status status = group.all_reduce(votes, "not finite");
  if (!status.ok() || votes[0] == 0) return "the sum of all ranks' gradients";
  return name_ranks("gradient", static_cast<int>(votes[0]), static_cast<int>(votes[1]),
                    group.size());
}

}  // namespace muster::trainer

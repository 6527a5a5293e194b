#include "trainer_core/optim/tensor_sums.h"

#include <algorithm>

#include "trainer_core/base/check.h"

namespace muster::trainer {

void TensorSums::clear() { std::ranges::fill(sums_, 0.0); }

std::span<double> TensorSums::of(const ShardPiece& piece) {
  const SumRange& range = ranges_[piece.bucket - first_][piece.row];
  return std::span(sums_).subspan(range.begin, range.count);
}

absl::Status TensorSums::add_up(SumExchange* exchange) {
  for (const Group& group : groups_) {
    MUSTER_CHECK(exchange != nullptr)
        << "no exchange for sums over " << group.axes.axes.to_string();
    const auto sums = std::span(sums_).subspan(group.begin, group.count);
    if (auto status = exchange->add_up(group.axes, sums); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer

#include "trainer_core/checkpoint/foreign/rotary_rows.h"

#include <algorithm>
#include <vector>

#include "trainer_core/base/check.h"

namespace muster::trainer {

namespace {

// Moves row i of each head to row `target(i)`.
template <class Target>
void move_rows(std::span<float> rows, int64_t head_dim, int64_t columns, Target target) {
  const auto head_size = static_cast<size_t>(head_dim * columns);
  MUSTER_CHECK(head_dim % 2 == 0 && rows.size() % head_size == 0)
      << rows.size() << " elements in heads of " << head_dim << " rows of " << columns;
  std::vector<float> before(head_size);  // (head_dim, columns)
  for (size_t head = 0; head < rows.size(); head += head_size) {
    const std::span<float> out = rows.subspan(head, head_size);
    std::copy(out.begin(), out.end(), before.begin());
    for (int64_t row = 0; row < head_dim; ++row)
      std::copy_n(before.begin() + row * columns, columns, out.begin() + target(row) * columns);
  }
}

}  // namespace

void split_rotary_pairs(std::span<float> rows, int64_t head_dim, int64_t columns) {
  move_rows(rows, head_dim, columns,
            [&](int64_t row) { return row / 2 + (row % 2) * (head_dim / 2); });
}

void join_rotary_pairs(std::span<float> rows, int64_t head_dim, int64_t columns) {
  const int64_t half = head_dim / 2;
  move_rows(rows, head_dim, columns, [&](int64_t row) { return row % half * 2 + row / half; });
}

}  // namespace muster::trainer

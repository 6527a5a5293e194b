#include "trainer_core/checkpoint/rotary_rows.h"

#include <algorithm>
#include <vector>

#include "trainer_core/base/check.h"

namespace muster::trainer {

void split_rotary_pairs(std::span<float> rows, int64_t head_dim, int64_t columns) {
  const auto head_size = static_cast<size_t>(head_dim * columns);
  MUSTER_CHECK(head_dim % 2 == 0 && rows.size() % head_size == 0)
      << rows.size() << " elements in heads of " << head_dim << " rows of " << columns;
  std::vector<float> interleaved(head_size);  // (head_dim, columns)
  for (size_t head = 0; head < rows.size(); head += head_size) {
    const std::span<float> out = rows.subspan(head, head_size);
    std::copy(out.begin(), out.end(), interleaved.begin());
    for (int64_t row = 0; row < head_dim; ++row) {
      const int64_t to = row / 2 + (row % 2) * (head_dim / 2);
      std::copy_n(interleaved.begin() + row * columns, columns, out.begin() + to * columns);
    }
  }
}

}  // namespace muster::trainer

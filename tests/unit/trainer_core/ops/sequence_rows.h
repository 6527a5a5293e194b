// Helpers for ranks that have only some positions of every sequence.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// Calls body(row, whole_row) for each row of a rank's tensor: `whole_row` is the same row in the
// tensor of complete sequences, `batch` sequences of `seq_len` positions.
template <class Body>
void for_rank_rows(int64_t batch, int64_t seq_len, const Positions& positions, const Body& body) {
  const TokenRows rows{positions};
  for (int64_t row = 0; row < batch * positions.count(); ++row)
    body(row, rows.sequence(row) * seq_len + rows.position(row));
}

// Returns a rank's rows (batch * positions, columns) of `whole` (batch * seq_len, width), from
// columns [first, first + columns).
inline Values rank_rows(const Values& whole, int64_t batch, int64_t seq_len,
                        const Positions& positions, int64_t first, int64_t columns) {
  const int64_t width = whole.size() / (batch * seq_len);
  Values part({batch * positions.count(), columns});
  for_rank_rows(batch, seq_len, positions, [&](int64_t row, int64_t from) {
    for (int64_t i = 0; i < columns; ++i) part[row * columns + i] = whole[from * width + first + i];
  });
  return part;
}
inline Values rank_rows(const Values& whole, int64_t batch, int64_t seq_len,
                        const Positions& positions) {
  return rank_rows(whole, batch, seq_len, positions, 0, whole.size() / (batch * seq_len));
}

// Returns a rank's lse (batch, heads, positions) from `whole` (batch, heads, seq_len).
inline Values rank_lse(const Values& whole, int64_t batch, int64_t heads, int64_t seq_len,
                       const Positions& positions) {
  Values part({batch, heads, positions.count()});
  for (int64_t i = 0; i < part.size(); ++i) {
    const int64_t head = i / positions.count();
    part[i] = whole[head * seq_len + positions.at(i % positions.count())];
  }
  return part;
}

}  // namespace muster::trainer

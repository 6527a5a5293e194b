// The CPU backend's checks of element values before a kernel runs; op_checks.cc has checked the
// shapes. A failed check ends the process.
#pragma once

#include <cstdint>

#include "trainer_core/base/check.h"
#include "trainer_core/ops/ops.h"
#include "trainer_core/ops/shape_checks.h"

namespace muster::trainer::cpu {

// Checks that all ids are in [0, limit).
inline void check_ids(const Tensor& ids, int64_t limit, const char* what) {
  const int32_t* id = ids.i32();
  for (int64_t i = 0; i < ids.elements(); ++i) {
    MUSTER_CHECK(id[i] >= 0 && id[i] < limit)
        << what << ' ' << id[i] << " at " << i << " of " << limit;
  }
}

// Checks that each position's document begins at or before the position, and not before the
// document of the previous position.
inline void check_starts(const Tensor& starts, const TokenRows& rows, int64_t count) {
  if (starts.data == nullptr) return;
  const int32_t* start = starts.i32();
  for (int64_t row = 0; row < count; ++row) {
    const int64_t position = rows.position(row);
    const bool follows = row > 0 && rows.sequence(row - 1) == rows.sequence(row) &&
                         rows.position(row - 1) + 1 == position;
    MUSTER_CHECK(start[row] >= (follows ? start[row - 1] : 0) && start[row] <= position)
        << "start " << start[row] << " of position " << position;
  }
}

inline void check_starts(const AttentionShape& shape) {
  check_starts(shape.starts, shape.token_rows(), shape.rows());
}

}  // namespace muster::trainer::cpu

// What the CPU backend checks of its arguments before a kernel sees them.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "trainer_core/base/check.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer::cpu {

inline void check_size(const Tensor& x, int64_t elements, const char* what) {
  MUSTER_CHECK(x.elements() == elements)
      << what << " has " << x.elements() << " elements, not " << elements;
}

inline void check_ids(const Tensor& ids, int64_t limit, const char* what) {
  const int32_t* id = ids.i32();
  for (int64_t i = 0; i < ids.elements(); ++i) {
    MUSTER_CHECK(id[i] >= 0 && id[i] < limit)
        << what << ' ' << id[i] << " at " << i << " of " << limit;
  }
}

// All but the last dimension.
inline int64_t rows_of(const Tensor& x) { return x.elements() / x.dim(x.rank - 1); }

// The type of a call's activations, which is one for all of them.
inline DType same_type(std::initializer_list<Tensor> activations) {
  const DType dtype = activations.begin()->dtype;
  MUSTER_CHECK(dtype == DType::kF32 || dtype == DType::kBf16) << "activations of no such type";
  for (const Tensor& tensor : activations)
    MUSTER_CHECK(tensor.dtype == dtype) << "activations of two types in one call";
  return dtype;
}

inline void check_positions(const Tensor& table, const TokenRows& rows) {
  MUSTER_CHECK(rows.positions.end() <= table.dim(0))
      << "position " << rows.positions.end() - 1 << " of a table of " << table.dim(0);
}

// A document begins at or before each of its positions, and not before the one before it begins.
inline void check_starts(const Tensor& starts, const TokenRows& rows, int64_t count) {
  if (starts.data == nullptr) return;
  check_size(starts, count, "starts");
  const int32_t* start = starts.i32();
  for (int64_t row = 0; row < count; ++row) {
    const int64_t position = rows.position(row);
    const bool follows = row > 0 && rows.sequence(row - 1) == rows.sequence(row) &&
                         rows.position(row - 1) + 1 == position;
    MUSTER_CHECK(start[row] >= (follows ? start[row - 1] : 0) && start[row] <= position)
        << "start " << start[row] << " of position " << position;
  }
}

inline void check_attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& out) {
  MUSTER_CHECK(shape.places().count() == shape.seq_len)
      << shape.places().count() << " positions in sequences of " << shape.seq_len;
  check_size(qkv, shape.rows() * shape.qkv_width(), "qkv");
  check_size(out, shape.rows() * shape.out_width(), "out");
  check_starts(shape.starts, shape.token_rows(), shape.rows());
}

// Null where the shape has no buckets.
inline float* relative_bias(const AttentionShape& shape, const Tensor& bias) {
  if (!shape.buckets.exist()) return nullptr;
  check_size(bias, shape.bias_elements(), "the relative bias");
  return bias.f32();
}

}  // namespace muster::trainer::cpu

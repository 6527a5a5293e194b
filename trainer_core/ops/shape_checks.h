// Checks of argument shapes, for op_checks.cc and the backends. A failed check ends the process. No
// check reads element values.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "trainer_core/base/check.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Checks the number of elements of x. `what`: the operand's name in the error message.
inline void check_size(const Tensor& x, int64_t elements, const char* what) {
  MUSTER_CHECK(x.elements() == elements)
      << what << " has " << x.elements() << " elements, not " << elements;
}

// Returns the product of all dimensions but the last.
inline int64_t rows_of(const Tensor& x) { return x.elements() / x.dim(x.rank - 1); }

// Returns the type of `activations`. Requires that all of them have the same type, fp32 or bf16.
inline DType same_type(std::initializer_list<Tensor> activations) {
  const DType dtype = activations.begin()->dtype;
  MUSTER_CHECK(dtype == DType::kF32 || dtype == DType::kBf16) << "activations of no such type";
  for (const Tensor& tensor : activations)
    MUSTER_CHECK(tensor.dtype == dtype) << "activations of two types in one call";
  return dtype;
}

// The sizes of a GEMM.
struct MatmulSizes {
  int64_t m, n, k;
};
// Returns the sizes of c (m, n) = op(a) (m, k) op(b) (k, n); ta and tb: the operand is stored
// transposed.
inline MatmulSizes matmul_sizes(const Tensor& a, bool ta, const Tensor& b, bool tb,
                                const Tensor& c) {
  const int64_t m = a.dim(ta ? 1 : 0), k = a.dim(ta ? 0 : 1), n = b.dim(tb ? 0 : 1);
  MUSTER_CHECK(a.rank == 2 && b.rank == 2 && c.rank == 2) << "matmul takes matrices";
  MUSTER_CHECK(b.dim(tb ? 1 : 0) == k && c.dim(0) == m && c.dim(1) == n)
      << "matmul of (" << m << ", " << k << ") by (" << b.dim(tb ? 1 : 0) << ", " << n << ") into ("
      << c.dim(0) << ", " << c.dim(1) << ")";
  return {m, n, k};
}

// Checks that the table (P, …) has a row for each position of `rows`.
inline void check_positions(const Tensor& table, const TokenRows& rows) {
  MUSTER_CHECK(rows.positions.end() <= table.dim(0))
      << "position " << rows.positions.end() - 1 << " of a table of " << table.dim(0);
}

// Checks the sizes of qkv and out, and the number of the shape's positions.
inline void check_attention_shape(const AttentionShape& shape, const Tensor& qkv,
                                  const Tensor& out) {
  MUSTER_CHECK(shape.row_positions().count() == shape.seq_len)
      << shape.row_positions().count() << " positions in sequences of " << shape.seq_len;
  check_size(qkv, shape.rows() * shape.qkv_width(), "qkv");
  check_size(out, shape.rows() * shape.out_width(), "out");
}

// Checks the size of a block of keys. Checks that each run of the queries' positions is equal to or
// disjoint from each run of the keys' positions, because the kernels handle no partly overlapping
// tiles.
inline void check_key_block(const AttentionShape& shape, const KeyValueBlock& keys) {
  const Positions queries = shape.row_positions();
  check_size(keys.rows, shape.batch * keys.positions.count() * shape.kv_width(), "keys and values");
  for (int i = 0; i < queries.runs(); ++i) {
    for (int j = 0; j < keys.positions.runs(); ++j) {
      const PositionRun &a = queries.run(i), &b = keys.positions.run(j);
      MUSTER_CHECK(a == b || a.end() <= b.position || b.end() <= a.position)
          << "queries " << a.position << " + " << a.count << " overlap keys " << b.position << " + "
          << b.count;
    }
  }
}

// Returns the elements of `bias` after checking its size; null if the shape has no buckets.
inline float* relative_bias(const AttentionShape& shape, const Tensor& bias) {
  if (!shape.buckets.exist()) return nullptr;
  check_size(bias, shape.bias_elements(), "the relative bias");
  return bias.f32();
}

}  // namespace muster::trainer

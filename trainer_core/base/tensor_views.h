// Views of parts of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "trainer_core/base/tensor.h"

namespace muster::trainer {

// Returns a view of shape `dims` of the elements of `tensor` from element `first` on. Requires that
// `tensor` contains them.
inline Tensor tensor_at(const Tensor& tensor, int64_t first, std::initializer_list<int64_t> dims) {
  auto* data = static_cast<std::byte*>(tensor.data);
  const Tensor part = Tensor::of(
      tensor.dtype, data + first * static_cast<int64_t>(dtype_bytes(tensor.dtype)), dims);
  MUSTER_CHECK(first >= 0 && first + part.elements() <= tensor.elements())
      << part.elements() << " elements from " << first << " of " << tensor.elements();
  return part;
}

// Returns a view of rows [first, first + count) of a matrix.
inline Tensor rows_at(const Tensor& matrix, int64_t first, int64_t count) {
  return tensor_at(matrix, first * matrix.dim(1), {count, matrix.dim(1)});
}

}  // namespace muster::trainer

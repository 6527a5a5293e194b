// A view of elements in an arena: a pointer, an element type and a shape. It does not own the
// elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "trainer_core/base/bf16.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/dtype.h"

namespace muster::trainer {

constexpr int kTensorRankMax = 4;

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kTensorRankMax> shape{};  // row-major; only the first `rank` entries are used

  static Tensor of(DType dtype, void* data, std::initializer_list<int64_t> dims) {
    MUSTER_CHECK(dims.size() <= kTensorRankMax) << "a tensor of " << dims.size() << " dimensions";
    Tensor t;
    t.data = data;
    t.dtype = dtype;
    for (int64_t dim : dims) t.shape[static_cast<size_t>(t.rank++)] = dim;
    return t;
  }
  static Tensor f32(float* data, std::initializer_list<int64_t> dims) {
    return of(DType::kF32, data, dims);
  }
  static Tensor i32(int32_t* data, std::initializer_list<int64_t> dims) {
    return of(DType::kI32, data, dims);
  }
  static Tensor bf16(Bf16* data, std::initializer_list<int64_t> dims) {
    return of(DType::kBf16, data, dims);
  }

  // Return the elements. Require that the tensor has this element type.
  int32_t* i32() const {
    MUSTER_CHECK(dtype == DType::kI32) << "not an int32 tensor";
    return static_cast<int32_t*>(data);
  }
  float* f32() const {
    MUSTER_CHECK(dtype == DType::kF32) << "not an fp32 tensor";
    return static_cast<float*>(data);
  }
  // Returns the data of a tensor that may be fp32 or bf16.
  void* float_data() const {
    MUSTER_CHECK(dtype == DType::kF32 || dtype == DType::kBf16) << "not a tensor of fp32 or bf16";
    return data;
  }
  int64_t dim(int i) const { return shape[static_cast<size_t>(i)]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dim(i);
    return n;
  }
  size_t bytes() const { return static_cast<size_t>(elements()) * dtype_bytes(dtype); }
};

}  // namespace muster::trainer

// Views of a contiguous buffer. Collectives read a ConstBufferView and write a BufferView. A view
// does not own the buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <type_traits>

#include "trainer_core/base/bf16.h"
#include "trainer_core/base/dtype.h"
#include "trainer_core/base/tensor.h"

namespace muster::trainer {

// The element types that collectives support.
template <class T>
concept Number = std::is_same_v<T, float> || std::is_same_v<T, Bf16> || std::is_same_v<T, int32_t>;

template <Number T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, Bf16>) return DType::kBf16;
  return std::is_same_v<T, float> ? DType::kF32 : DType::kI32;
}

// A contiguous range of such elements, for instance a vector or a span.
template <class R>
concept NumberRange =
    std::ranges::contiguous_range<R> && Number<std::ranges::range_value_t<std::remove_cvref_t<R>>>;

// A view of `count` elements that may be written.
struct BufferView {
  std::byte* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kF32;

  BufferView() = default;
  BufferView(void* first, size_t how_many, DType type)
      : data(static_cast<std::byte*>(first)), count(how_many), dtype(type) {}
  // NOLINTBEGIN(google-explicit-constructor): a span, a vector or a tensor is what callers have.
  // NOLINTBEGIN(bugprone-forwarding-reference-overload): no BufferView is a range.
  template <NumberRange R>
  requires std::ranges::borrowed_range<R> &&
      (!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
          BufferView(R&& range)
      : BufferView(std::ranges::data(range), std::ranges::size(range),
                   dtype_of<std::ranges::range_value_t<std::remove_cvref_t<R>>>()) {}
  // NOLINTEND(bugprone-forwarding-reference-overload)
  BufferView(const Tensor& tensor)
      : BufferView(tensor.data, static_cast<size_t>(tensor.elements()), tensor.dtype) {}
  // NOLINTEND(google-explicit-constructor)

  size_t bytes() const { return count * dtype_bytes(dtype); }
  // Returns a view of `how_many` elements from element `offset` on.
  BufferView part(size_t offset, size_t how_many) const {
    return {data + offset * dtype_bytes(dtype), how_many, dtype};
  }
};

// A view of `count` elements that may only be read.
struct ConstBufferView {
  const std::byte* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kF32;

  ConstBufferView() = default;
  ConstBufferView(const void* first, size_t how_many, DType type)
      : data(static_cast<const std::byte*>(first)), count(how_many), dtype(type) {}
  // NOLINTBEGIN(google-explicit-constructor): as above; a temporary lives until the collective
  // returns.
  template <NumberRange R>
  ConstBufferView(const R& range)
      : ConstBufferView(std::ranges::data(range), std::ranges::size(range),
                        dtype_of<std::ranges::range_value_t<R>>()) {}
  ConstBufferView(const Tensor& tensor)
      : ConstBufferView(tensor.data, static_cast<size_t>(tensor.elements()), tensor.dtype) {}
  ConstBufferView(const BufferView& view) : ConstBufferView(view.data, view.count, view.dtype) {}
  // NOLINTEND(google-explicit-constructor)

  size_t bytes() const { return count * dtype_bytes(dtype); }
  // Returns a view of `how_many` elements from element `offset` on.
  ConstBufferView part(size_t offset, size_t how_many) const {
    return {data + offset * dtype_bytes(dtype), how_many, dtype};
  }
};

}  // namespace muster::trainer

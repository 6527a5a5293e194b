// Helpers that run an operation on the CPU backend and on the CUDA backend with the same values,
// and compare the results.
//
// A tensor exists on both backends. A test may shift its first element by one element, so that it
// is not aligned as an allocation is. An error is the largest difference, divided by the largest
// magnitude that the CPU has computed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/random/philox.h"
#include "tests/unit/trainer_core/large_shapes.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/ops/cuda/device/cuda.h"
#include "trainer_core/ops/ops.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {

enum class Side { kCpu, kGpu };

// Both backends. The whole program shares one object, because creating the backends takes longer
// than a test.
struct Backends {
  std::unique_ptr<Ops> cpu;
  Backend& device;
  Ops* gpu;  // owned by `device`
};
Backends& backends();
// Returns whether the tests run under a sanitizer. In this case the tests use only built-in
// kernels, because the sanitizer also reports hazards within libraries' kernels.
bool is_sanitized();

// A tensor on both backends.
class Both {
 public:
  using Shape = std::vector<int64_t>;

  Both(DType dtype, Shape shape, bool skewed = false)
      : dtype_(dtype), shape_(std::move(shape)), offset_(skewed ? 1 : 0) {
    elements_ = 1;
    for (const int64_t dim : shape_) elements_ *= dim;
    host_.resize(static_cast<size_t>(elements_ + 2) * dtype_bytes(dtype_) + kAlignment);
    device_ =
        std::make_unique<CudaMemory>(static_cast<size_t>(elements_ + 2) * dtype_bytes(dtype_));
  }
  // Returns a tensor of values that are uniform in (-scale, scale), rounded to the type.
  static Both random(DType dtype, Shape shape, uint64_t stream, float scale = 1,
                     bool skewed = false) {
    Both both(dtype, std::move(shape), skewed);
    const Philox philox{.key = 11, .stream = stream};
    std::vector<float> values(static_cast<size_t>(both.elements_));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = scale * (2 * uniform_from_bits(philox(i)[0]) - 1);
    both.set(values);
    return both;
  }
  static Both filled(DType dtype, Shape shape, float value, bool skewed = false) {
    Both both(dtype, std::move(shape), skewed);
    both.set(std::vector<float>(static_cast<size_t>(both.elements_), value));
    return both;
  }
  // Returns a tensor of int32 values in [0, limit).
  static Both ids(Shape shape, int32_t limit, uint64_t stream) {
    Both both(DType::kI32, std::move(shape));
    const Philox philox{.key = 12, .stream = stream};
    std::vector<int32_t> values;
    for (int64_t i = 0; i < both.elements_; ++i)
      values.push_back(
          static_cast<int32_t>(philox(static_cast<uint64_t>(i))[0] % static_cast<uint32_t>(limit)));
    both.set_ids(values);
    return both;
  }

  void set(const std::vector<float>& values) {
    Tensor cpu = on(Side::kCpu);
    for (int64_t i = 0; i < elements_; ++i) {
      if (dtype_ == DType::kBf16) {
        static_cast<Bf16*>(cpu.data)[i] = Bf16::round(values[static_cast<size_t>(i)]);
      } else if (dtype_ == DType::kI8) {
        static_cast<int8_t*>(cpu.data)[i] = static_cast<int8_t>(values[static_cast<size_t>(i)]);
      } else {
        static_cast<float*>(cpu.data)[i] = values[static_cast<size_t>(i)];
      }
    }
    copy_to_gpu();
  }
  void set_ids(const std::vector<int32_t>& values) {
    std::copy(values.begin(), values.end(), on(Side::kCpu).i32());
    copy_to_gpu();
  }
  // Copies the CPU's values to the GPU, after a test has computed them on the CPU.
  void copy_to_gpu() { backends().gpu->upload(on(Side::kCpu).data, on(Side::kGpu)); }

  Tensor on(Side side) {
    char* const base = side == Side::kCpu ? aligned() : static_cast<char*>(device_->data());
    Tensor tensor;
    tensor.data = base + static_cast<size_t>(offset_) * dtype_bytes(dtype_);
    tensor.dtype = dtype_;
    for (const int64_t dim : shape_) tensor.shape[static_cast<size_t>(tensor.rank++)] = dim;
    return tensor;
  }
  Workspace workspace(Side side) { return {on(side).f32(), elements_}; }
  int64_t elements() const { return elements_; }

  std::vector<double> values(Side side) {
    const Tensor tensor = on(side);
    std::vector<char> bytes(tensor.bytes());
    if (side == Side::kGpu) {
      backends().gpu->download(tensor, bytes.data());
    } else if (!bytes.empty()) {
      std::memcpy(bytes.data(), tensor.data, bytes.size());
    }
    std::vector<double> result;
    result.reserve(static_cast<size_t>(elements_));
    for (int64_t i = 0; i < elements_; ++i) result.push_back(number(bytes.data(), i));
    return result;
  }

 private:
  static constexpr size_t kAlignment = 64;

  char* aligned() {
    const auto address = reinterpret_cast<uintptr_t>(host_.data());
    return host_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }
  double number(const char* bytes, int64_t i) const {
    if (dtype_ == DType::kBf16) {
      Bf16 value;
      std::memcpy(&value, bytes + 2 * i, sizeof(value));
      return static_cast<double>(value.value());
    }
    if (dtype_ == DType::kI8) return static_cast<double>(static_cast<int8_t>(bytes[i]));
    if (dtype_ == DType::kI32) {
      int32_t value = 0;
      std::memcpy(&value, bytes + 4 * i, sizeof(value));
      return value;
    }
    float value = 0;
    std::memcpy(&value, bytes + 4 * i, sizeof(value));
    return static_cast<double>(value);
  }

  DType dtype_;
  Shape shape_;
  int64_t offset_;
  int64_t elements_ = 0;
  std::vector<char> host_;
  std::unique_ptr<CudaMemory> device_;
};

// Calls body(ops, side) for both backends.
template <class Body>
void on_both(const Body& body) {
  body(*backends().cpu, Side::kCpu);
  body(*backends().gpu, Side::kGpu);
  backends().gpu->synchronize();
}

// Returns the largest difference divided by the CPU's largest magnitude. NaN is accepted only where
// both sides have it.
inline double normalised_error(Both& x) {
  const std::vector<double> expected = x.values(Side::kCpu), actual = x.values(Side::kGpu);
  double largest = 1e-12, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    if (expected[i] == actual[i]) continue;
    if (!std::isfinite(expected[i]) || !std::isfinite(actual[i])) return INFINITY;
    difference = std::max(difference, std::abs(expected[i] - actual[i]));
  }
  for (const double value : expected)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return difference / largest;
}

inline void expect_same(Both& x, double bound, const char* what) {
  EXPECT_LE(normalised_error(x), bound) << what;
}
inline void expect_equal(Both& x, const char* what) {
  EXPECT_EQ(x.values(Side::kCpu), x.values(Side::kGpu)) << what;
}

// Returns the bound on an operation's error. In fp32, results differ because sums are computed in
// another order; a bf16 result may therefore be rounded differently, which changes its last bit.
inline double bound_of(DType dtype, double of_fp32 = 4e-6) {
  return dtype == DType::kBf16 ? 1.0 / 128 : of_fp32;
}

// A case of tests of rows of activations: the type, the shape (rows, width), and whether the data
// is shifted by one element.
struct RowCase {
  DType dtype;
  int64_t rows, width;
  bool skewed;

  friend std::ostream& operator<<(std::ostream& out, const RowCase& c) {
    return out << (c.dtype == DType::kBf16 ? "bf16" : "fp32") << '_' << c.rows << 'x' << c.width
               << (c.skewed ? "_skewed" : "");
  }
};
inline std::vector<RowCase> row_cases(bool with_empty = true) {
  std::vector<RowCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    cases.push_back({dtype, 1, 1, false});
    if (with_empty) cases.push_back({dtype, 0, 8, false});
    cases.push_back({dtype, 3, 7, true});
    cases.push_back({dtype, 70, 64, false});
    cases.push_back({dtype, 5, 1001, true});
    cases.push_back({dtype, 129, 40, true});
    // Whole 16-byte packs: rows that take several warps, and rows larger than a block's registers.
    cases.push_back({dtype, 67, 1048, false});
    cases.push_back({dtype, 2, 16'392, false});
    if (large_shapes()) cases.push_back({dtype, 2048, 4096, false});
  }
  return cases;
}
struct RowTest : testing::TestWithParam<RowCase> {
  DType dtype() const { return GetParam().dtype; }
  int64_t rows() const { return GetParam().rows; }
  int64_t width() const { return GetParam().width; }
  Both activations(uint64_t stream, float scale = 1) const {
    return Both::random(dtype(), {rows(), width()}, stream, scale, GetParam().skewed);
  }
  Both parameters(uint64_t stream) const {
    return Both::random(DType::kF32, {width()}, stream, 1, GetParam().skewed);
  }
};

}  // namespace muster::trainer

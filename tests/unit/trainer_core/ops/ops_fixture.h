// Helpers of operation tests: tensors with their own memory, random values, and derivatives of fp64
// references.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "common/random/philox.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// An fp32 tensor that owns its elements; converts to a Tensor that refers to them.
class Values {
 public:
  Values(std::initializer_list<int64_t> dims, float value = 0)
      : dims_(dims),
        data_(static_cast<size_t>(
                  std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>())),
              value) {}

  static Values random(std::initializer_list<int64_t> dims, uint64_t stream, float scale = 1) {
    Values values(dims);
    const Philox philox{.key = 5, .stream = stream};
    for (size_t i = 0; i < values.data_.size(); ++i) {
      values.data_[i] = scale * (2 * uniform_from_bits(philox(i)[0]) - 1);
    }
    return values;
  }

  operator Tensor() {  // NOLINT(google-explicit-constructor): tests read better
    Tensor tensor = Tensor::f32(data_.data(), {});
    for (const int64_t dim : dims_) tensor.shape[static_cast<size_t>(tensor.rank++)] = dim;
    return tensor;
  }
  float& operator[](int64_t i) { return data_[static_cast<size_t>(i)]; }
  float operator[](int64_t i) const { return data_[static_cast<size_t>(i)]; }
  int64_t size() const { return static_cast<int64_t>(data_.size()); }
  const std::vector<float>& data() const { return data_; }

  friend bool operator==(const Values& a, const Values& b) { return a.data_ == b.data_; }

 private:
  std::vector<int64_t> dims_;
  std::vector<float> data_;
};

// A bf16 tensor that owns its elements, which are rounded from fp32.
class HalfValues {
 public:
  explicit HalfValues(const Values& values) : wide_(values) {
    for (const float value : values.data()) data_.push_back(Bf16::round(value));
  }
  operator Tensor() {  // NOLINT(google-explicit-constructor)
    Tensor tensor = wide_;
    tensor.dtype = DType::kBf16;
    tensor.data = data_.data();
    return tensor;
  }
  // Returns the current elements as fp32.
  Values widened() const {
    Values values = wide_;
    for (size_t i = 0; i < data_.size(); ++i) values[static_cast<int64_t>(i)] = data_[i].value();
    return values;
  }

 private:
  Values wide_;  // the fp32 values, for their shape
  std::vector<Bf16> data_;
};

// An int32 tensor of random ids in [0, limit).
class Ids {
 public:
  Ids(int64_t n, int32_t limit, uint64_t stream) {
    const Philox philox{.key = 6, .stream = stream};
    for (int64_t i = 0; i < n; ++i) {
      data_.push_back(
          static_cast<int32_t>(philox(static_cast<uint64_t>(i))[0] % static_cast<uint32_t>(limit)));
    }
  }
  operator Tensor() {  // NOLINT(google-explicit-constructor)
    return Tensor::i32(data_.data(), {static_cast<int64_t>(data_.size())});
  }
  int32_t operator[](int64_t i) const { return data_[static_cast<size_t>(i)]; }

 private:
  std::vector<int32_t> data_;
};

// Rows of a paged cache: `count` new positions from `first` on in each of `sequences` sequences.
// The blocks of a sequence are neither adjacent nor in order.
class TestRows {
 public:
  TestRows(int64_t sequences, int64_t count, int64_t first, int64_t blocks_per_sequence)
      : blocks_per_sequence_(blocks_per_sequence) {
    for (int64_t b = 0; b < sequences; ++b) {
      for (int64_t i = 0; i < count; ++i) {
        sequences_.push_back(static_cast<int32_t>(b));
        positions_.push_back(static_cast<int32_t>(first + i));
      }
      for (int64_t i = 0; i < blocks_per_sequence; ++i)
        blocks_.push_back(static_cast<int32_t>((blocks_per_sequence - 1 - i) * sequences + b));
    }
  }
  operator PagedRows() {  // NOLINT(google-explicit-constructor)
    const auto rows = static_cast<int64_t>(positions_.size());
    const auto blocks = static_cast<int64_t>(blocks_.size());
    return {.sequences = Tensor::i32(sequences_.data(), {rows}),
            .positions = Tensor::i32(positions_.data(), {rows}),
            .blocks =
                Tensor::i32(blocks_.data(), {blocks / blocks_per_sequence_, blocks_per_sequence_})};
  }

 private:
  int64_t blocks_per_sequence_;
  std::vector<int32_t> sequences_, positions_, blocks_;
};

// A workspace that begins with NaN, so that tests detect reads of uninitialised scratch.
struct Scratch {
  explicit Scratch(int64_t elements) : memory(static_cast<size_t>(elements), std::nanf("")) {}
  operator Workspace() { return {memory.data(), static_cast<int64_t>(memory.size())}; }  // NOLINT

  std::vector<float> memory;
};

// Returns the derivative of f with respect to each x[i], by fourth-order central differences.
inline std::vector<double> derivative(std::vector<double> x,
                                      const std::function<double(const std::vector<double>&)>& f) {
  constexpr double kStep = 1e-3;
  std::vector<double> result;
  for (double& value : x) {
    const double at = value;
    const auto sample = [&](double shift) {
      value = at + shift;
      return f(x);
    };
    result.push_back(
        (8 * (sample(kStep) - sample(-kStep)) - (sample(2 * kStep) - sample(-2 * kStep))) /
        (12 * kStep));
    value = at;
  }
  return result;
}

inline std::vector<double> as_double(const Values& values) {
  return {values.data().begin(), values.data().end()};
}

// Compares with a reference. `tolerance` is relative to the reference's largest magnitude.
inline void expect_near(const Values& actual, const std::vector<double>& expected,
                        double tolerance) {
  ASSERT_EQ(actual.size(), static_cast<int64_t>(expected.size()));
  double largest = 1e-6;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (int64_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[static_cast<size_t>(i)], tolerance * largest)
        << "element " << i;
  }
}

}  // namespace muster::trainer

// Rounding to grids against the tables and casts of ml_dtypes (tests/golden/make_quantization.py),
// and scales.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "common/random/philox.h"
#include "tests/unit/trainer_core/golden_file.h"
#include "tests/unit/trainer_core/ops/ops_fixture.h"

namespace muster::trainer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Values values_of(const std::vector<float>& numbers) {
  Values values({static_cast<int64_t>(numbers.size())});
  for (size_t i = 0; i < numbers.size(); ++i) values[static_cast<int64_t>(i)] = numbers[i];
  return values;
}

std::vector<float> rounded(NumberGrid grid, const std::vector<float>& numbers, float scale = 1,
                           const std::optional<RoundingNoise>& noise = std::nullopt,
                           int threads = 1) {
  Values x = values_of(numbers), one({1}, scale), out({x.size()});
  cpu_ops(threads)->quantize(grid, x, ScaleOf::kTensor, one, noise, out);
  // Every number of a grid is a bf16 number.
  HalfValues half(out);
  cpu_ops(threads)->quantize(grid, x, ScaleOf::kTensor, one, noise, half);
  const Values widened = half.widened();
  for (int64_t i = 0; i < out.size(); ++i) {
    EXPECT_TRUE(out[i] == widened[i] || (std::isnan(out[i]) && std::isnan(widened[i]))) << i;
  }
  return out.data();
}

void expect_same_bits(const std::vector<float>& actual, const std::vector<float>& expected,
                      const std::vector<float>& from) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(actual[i])) << from[i];
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
          << from[i] << " became " << actual[i] << ", not " << expected[i];
    }
  }
}

struct FloatGrid {
  NumberGrid grid;
  const char* name;

  // Returns the grid's finite values from 0 on, indexed by their codes.
  std::vector<float> numbers() const {
    const auto all =
        GoldenFile("quantization.safetensors").tensor<float>(std::string("grid/") + name);
    std::vector<float> finite(all.begin(), all.begin() + 128);
    std::erase_if(finite, [](float number) { return !std::isfinite(number); });
    EXPECT_TRUE(std::ranges::is_sorted(finite));
    return finite;
  }
};

class Fp8 : public testing::TestWithParam<FloatGrid> {};

// Tests where the function steps, and that it steps nowhere else: each value, and the midpoint of
// two with its neighbours.
TEST_P(Fp8, RoundsToTheNearestOfItsNumbers) {
  const std::vector<float> numbers = GetParam().numbers();
  EXPECT_EQ(numbers.back(), grid_limit(GetParam().grid));
  std::vector<float> from, to;
  const auto expect = [&](float x, float y) {
    from.insert(from.end(), {x, -x});
    to.insert(to.end(), {y, -y});
  };
  for (size_t code = 0; code < numbers.size(); ++code) {
    expect(numbers[code], numbers[code]);
    if (code + 1 == numbers.size()) break;
    const float low = numbers[code], high = numbers[code + 1];
    const float middle = (low + high) / 2;
    expect(std::nextafter(low, high), low);
    expect(std::nextafter(middle, low), low);
    expect(middle, code % 2 == 0 ? low : high);
    expect(std::nextafter(middle, high), high);
    expect(std::nextafter(high, low), high);
  }
  const float limit = numbers.back();
  for (const float beyond : {std::nextafter(limit, kInfinity), 2 * limit, 1e38F})
    expect(beyond, limit);
  expect(std::numeric_limits<float>::denorm_min(), 0);
  expect(kInfinity, std::nanf(""));
  expect(std::nanf(""), std::nanf(""));
  expect_same_bits(rounded(GetParam().grid, from), to, from);
}

TEST_P(Fp8, RoundsEveryBf16Number) {
  const std::vector<float> numbers = GetParam().numbers();
  std::vector<float> from, to;
  for (uint32_t word = 0; word < 1 << 16; ++word) {
    const float x = Bf16{static_cast<uint16_t>(word)}.value();
    from.push_back(x);
    if (!std::isfinite(x)) {
      to.push_back(std::nanf(""));
      continue;
    }
    const double size = std::min(std::abs(x), numbers.back());
    const auto above = std::ranges::lower_bound(numbers, size) - numbers.begin();
    auto nearest = static_cast<size_t>(above);
    if (above > 0) {
      const double up = numbers[nearest] - size, down = size - numbers[nearest - 1];
      if (down < up || (down == up && nearest % 2 == 1)) --nearest;
    }
    to.push_back(std::copysign(numbers[nearest], x));
  }
  expect_same_bits(rounded(GetParam().grid, from, 1, std::nullopt, 2), to, from);
}

TEST_P(Fp8, RoundsAsACast) {
  const GoldenFile file("quantization.safetensors");
  const auto from = file.tensor<float>("sample/fp32");
  const auto to = file.tensor<float>(std::string("sample/") + GetParam().name);
  expect_same_bits(rounded(GetParam().grid, from), to, from);
}

INSTANTIATE_TEST_SUITE_P(Grids, Fp8,
                         testing::Values(FloatGrid{NumberGrid::kE4m3, "e4m3"},
                                         FloatGrid{NumberGrid::kE5m2, "e5m2"}));

TEST(Int8, RoundsToTheNearestInteger) {
  std::vector<float> from, to;
  for (int i = -600; i <= 600; ++i) {
    const auto x = static_cast<float>(i) / 4;  // includes halves
    from.push_back(x);
    to.push_back(std::clamp(std::nearbyint(x), -127.0F, 127.0F));
  }
  from.insert(from.end(), {1e38F, kInfinity, std::nanf("")});
  to.insert(to.end(), {127, std::nanf(""), std::nanf("")});
  expect_same_bits(rounded(NumberGrid::kInt8, from), to, from);
}

TEST(StochasticRounding, IsRightOnAverage) {
  constexpr size_t kDraws = 200'000;
  for (const float x : {0.1F, 0.5F, 3.75F, -2.3F}) {
    const auto draws = rounded(NumberGrid::kInt8, std::vector<float>(kDraws, x), 1,
                               RoundingNoise{.key = 9, .location = 3}, 2);
    double sum = 0;
    for (const float draw : draws) {
      ASSERT_LT(std::abs(draw - x), 1);
      sum += draw;
    }
    // Five standard deviations of the mean of a choice between two neighbours.
    EXPECT_NEAR(sum / kDraws, x, 5 * 0.5 / std::sqrt(double{kDraws})) << x;
  }
  EXPECT_EQ(rounded(NumberGrid::kInt8, {2, -7, 0}, 1, RoundingNoise{.key = 9}),
            (std::vector<float>{2, -7, 0}));
}

// x / scale is rounded before noise is added to it: an FMA of both would make another integer of
// these numbers.
TEST(StochasticRounding, RoundsTheQuotientFirst) {
  constexpr uint64_t kKey = 9;
  constexpr uint32_t kLocation = 3;
  constexpr float kScale = 3;
  const volatile float inverse = 1 / kScale;
  const Philox philox{.key = kKey, .stream = 0};
  std::vector<float> from, to;
  for (uint64_t element = 0; from.size() < 4096; ++element) {
    const uint32_t word = philox((uint64_t{kLocation} << 46) + element / 4)[element % 4];
    const float noise = uniform_from_bits(word) - 0.5F;
    const float middle = static_cast<float>(element % 120) + 0.5F;
    float x = (middle - noise) * kScale;
    float expected = 0;
    for (int step = 0; step < 16; ++step) {
      const volatile float quotient = x * inverse;
      expected = std::rint(quotient + noise);
      if (expected != std::rint(std::fma(x, inverse, noise))) break;
      x = std::nextafter(x, kInfinity);
    }
    from.push_back(x);
    to.push_back(expected);
  }
  int told_apart = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const uint32_t word = philox((uint64_t{kLocation} << 46) + i / 4)[i % 4];
    told_apart += std::rint(std::fma(from[i], inverse, uniform_from_bits(word) - 0.5F)) != to[i];
  }
  EXPECT_GT(told_apart, 100);
  const auto draws =
      rounded(NumberGrid::kInt8, from, kScale, RoundingNoise{.key = kKey, .location = kLocation});
  for (size_t i = 0; i < draws.size(); ++i) ASSERT_EQ(draws[i], to[i]) << i << ": " << from[i];
}

// However sequences are spread over batches and threads.
TEST(StochasticRounding, BelongsToTheSample) {
  constexpr int64_t kEach = 3 * 301;
  const auto ops = cpu_ops(2);
  const auto draw = [&](int64_t sequences, uint64_t first, uint32_t location) {
    Values x({sequences * 3, 301}, 0.5F), one({1}, 1), out({sequences * 3, 301});
    const SampleElements elements{first, {Positions::first(3)}};
    ops->quantize(NumberGrid::kInt8, x, ScaleOf::kTensor, one,
                  RoundingNoise{.key = 4, .location = location, .elements = elements}, out);
    return out.data();
  };
  const std::vector<float> whole = draw(12, 5, 1);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(draw(1, 5 + static_cast<uint64_t>(i), 1),
              std::vector<float>(whole.begin() + i * kEach, whole.begin() + (i + 1) * kEach));
  }
  EXPECT_NE(draw(12, 5, 2), whole);
}

TEST(AbsMax, OfTensorsRowsAndColumns) {
  for (const int threads : {1, 3}) {
    const auto ops = cpu_ops(threads);
    constexpr int64_t kRows = 91, kColumns = 211;
    Values x = Values::random({kRows, kColumns}, 3, 5);
    std::vector<float> rows(kRows), columns(kColumns);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        const float size = std::abs(x[i * kColumns + j]);
        rows[static_cast<size_t>(i)] = std::max(rows[static_cast<size_t>(i)], size);
        columns[static_cast<size_t>(j)] = std::max(columns[static_cast<size_t>(j)], size);
      }
    }
    Values all({1}, 9), by_row({kRows}, 9), by_column({kColumns}, 9);
    ops->abs_max(x, ScaleOf::kTensor, all, Accumulate::kNo);
    ops->abs_max(x, ScaleOf::kRow, by_row, Accumulate::kNo);
    ops->abs_max(x, ScaleOf::kColumn, by_column, Accumulate::kNo);
    EXPECT_EQ(all[0], *std::ranges::max_element(rows));
    EXPECT_EQ(by_row.data(), rows);
    EXPECT_EQ(by_column.data(), columns);
    Values larger({1}, 9), smaller({1}, 1);
    ops->abs_max(x, ScaleOf::kTensor, larger, Accumulate::kYes);
    ops->abs_max(x, ScaleOf::kTensor, smaller, Accumulate::kYes);
    EXPECT_EQ(larger[0], 9);
    EXPECT_EQ(smaller[0], all[0]);
    x[17] = std::nanf("");
    x[18] = -kInfinity;
    ops->abs_max(x, ScaleOf::kTensor, all, Accumulate::kNo);
    EXPECT_TRUE(std::isnan(all[0]));
  }
}

TEST(CurrentScale, MapsTheLargestToTheLimit) {
  const auto ops = cpu_ops(1);
  Values amax = values_of({3, 0, kInfinity, 1e-45F}), scale({4});
  ops->current_scale(NumberGrid::kE4m3, amax, scale);
  EXPECT_EQ(scale[0], 1 / (448.0F / 3));
  EXPECT_EQ(scale[1], 1);
  EXPECT_EQ(scale[2], 1);
  EXPECT_GT(scale[3], 0);
  ops->current_scale(NumberGrid::kInt8, amax, amax);
  EXPECT_EQ(amax[0], 3 / 127.5F);
  EXPECT_EQ(amax[1], 1 / 127.5F);
}

// One GEMM: input, kernel, gradient.
TEST(DelayedScale, IsOfTheLargestInTheHistory) {
  const auto ops = cpu_ops(1);
  Values history({3, 3}), scale({3}, 1);
  const auto advance = [&](float input, float kernel, float gradient) {
    Values amax = values_of({input, kernel, gradient});
    ops->delayed_scale(amax, history, scale);
  };
  advance(0, 2, 4);  // the input has no magnitude: its scale is unchanged
  EXPECT_EQ(scale.data(), (std::vector<float>{1, 1 / (448 / 2.0F), 1 / (57'344 / 4.0F)}));
  advance(7, 1, 8);
  advance(5, 1, 1);
  EXPECT_EQ(scale.data(),
            (std::vector<float>{1 / (448 / 7.0F), 1 / (448 / 2.0F), 1 / (57'344 / 8.0F)}));
  advance(3, 1, 1);  // the first step is forgotten
  EXPECT_EQ(scale.data(),
            (std::vector<float>{1 / (448 / 7.0F), 1 / (448 / 1.0F), 1 / (57'344 / 8.0F)}));
  EXPECT_EQ(history.data(), (std::vector<float>{3, 7, 5, 1, 1, 1, 1, 8, 1}));
  const std::vector<float> before = scale.data();
  advance(kInfinity, std::nanf(""), kInfinity);
  EXPECT_EQ(scale.data(), before);
}

TEST(Dequantize, ScalesRowsAndColumns) {
  const auto ops = cpu_ops(2);
  constexpr int64_t kRows = 5, kColumns = 23;
  Values product = Values::random({kRows, kColumns}, 1), rows = Values::random({kRows}, 2),
         columns = Values::random({kColumns}, 3), two({1}, 2);
  Values sum({kRows, kColumns}, 1), scaled({kRows, kColumns}), by_one({kRows, kColumns});
  ops->dequantize(product, rows, columns, sum, Accumulate::kYes);
  ops->dequantize(product, rows, columns, scaled, Accumulate::kNo);
  ops->dequantize(product, two, two, by_one, Accumulate::kNo);
  for (int64_t i = 0; i < product.size(); ++i) {
    const double expected = double{product[i]} * rows[i / kColumns] * columns[i % kColumns];
    ASSERT_NEAR(scaled[i], expected, 1e-7);
    ASSERT_NEAR(sum[i], 1 + expected, 2e-7);
    ASSERT_EQ(by_one[i], 4 * product[i]);
  }
  ops->dequantize(product, rows, columns, product, Accumulate::kNo);
  EXPECT_EQ(product, scaled);
}

}  // namespace
}  // namespace muster::trainer

#include "trainer_core/base/tensor_box.h"

#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

// Visits every index of the tensor in the box, with its offset in the box.
void visit(const TensorBox& box, const auto& take) {
  for (int64_t i = 0; i < box.elements(); ++i) {
    std::vector<int64_t> index(box.shape.size());
    int64_t rest = i;
    for (size_t d = box.shape.size(); d-- > 0; rest /= box.extent[d])
      index[d] = box.begin[d] + rest % box.extent[d];
    take(index, i);
  }
}

TensorBox random_box(const std::vector<int64_t>& shape, std::mt19937_64& random) {
  TensorBox box{"t", shape, {}, {}, 0};
  for (const int64_t size : shape) {
    if (random() % 2 == 0) {
      box.begin.push_back(0);
      box.extent.push_back(size);
      continue;
    }
    const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
    box.begin.push_back(begin);
    box.extent.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(size - begin)));
  }
  return box;
}

// Compares with a map from indices to offsets.
TEST(TensorBox, CommonRunsAreTheIntersection) {
  std::mt19937_64 random(1);
  int64_t merged = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> shape(random() % 5);
    for (int64_t& size : shape) size = 1 + static_cast<int64_t>(random() % 5);
    const TensorBox from = random_box(shape, random), to = random_box(shape, random);
    std::map<std::vector<int64_t>, int64_t> offsets;
    visit(to, [&](const auto& index, int64_t offset) { offsets[index] = offset; });
    std::vector<std::pair<int64_t, int64_t>> expected, got;
    visit(from, [&](const auto& index, int64_t offset) {
      if (offsets.contains(index)) expected.emplace_back(offset, offsets[index]);
    });
    ASSERT_EQ(overlap(from, to), !expected.empty());
    if (expected.empty()) continue;
    const CommonRuns runs(from, to);
    for (int64_t run = 0; run < runs.count(); ++run) {
      for (int64_t i = 0; i < runs.length(); ++i)
        got.emplace_back(runs.at(run).from + i, runs.at(run).to + i);
    }
    ASSERT_EQ(got, expected);
    merged += !shape.empty() && runs.length() > from.extent.back() ? 1 : 0;
    for (int64_t element = 0; element <= from.elements(); ++element) {
      int64_t first = 0;
      while (first < runs.count() && runs.at(first).from + runs.length() <= element) ++first;
      ASSERT_EQ(runs.first_after(element), first);
    }
  }
  EXPECT_GT(merged, 100) << "whole rows are one run";
}

// A range's boxes cover the range, and there are no more of them than the header promises.
TEST(TensorBox, ARangeIsAFewBoxes) {
  std::mt19937_64 random(2);
  size_t most = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> shape(random() % 4);
    for (int64_t& size : shape) size = 1 + static_cast<int64_t>(random() % 5);
    TensorBox box = random_box(shape, random);
    box.offset = 1000;
    std::vector<std::vector<int64_t>> all, got;
    visit(box, [&](const auto& index, int64_t) { all.push_back(index); });
    const auto first = static_cast<int64_t>(random() % (all.size() + 1));
    const auto count =
        static_cast<int64_t>(random() % (all.size() + 1 - static_cast<size_t>(first)));
    int64_t offset = box.offset + first;
    const std::vector<TensorBox> parts = boxes_of_range(box, first, count);
    for (const TensorBox& part : parts) {
      ASSERT_EQ(part.offset, offset);
      ASSERT_EQ(part.shape, box.shape);
      ASSERT_GT(part.elements(), 0);
      offset += part.elements();
      visit(part, [&](const auto& index, int64_t) { got.push_back(index); });
    }
    ASSERT_EQ(got, std::vector(all.begin() + first, all.begin() + first + count));
    ASSERT_LE(parts.size(), std::max<size_t>(1, 2 * shape.size() - 1));
    most = std::max(most, parts.size());
  }
  EXPECT_EQ(most, 5U);
}

TEST(TensorBox, PartsAreConsecutiveAndNoLargerThanRequested) {
  const TensorBox box = whole_box({"t", {1, 7, 3}, 100});
  const std::vector<TensorBox> parts = split_box(box, 8);
  ASSERT_EQ(parts.size(), 4U);
  int64_t offset = 100, begin = 0;
  for (const TensorBox& part : parts) {
    EXPECT_LE(part.elements(), 8);
    EXPECT_EQ(part.offset, offset);
    EXPECT_EQ(part.begin, (std::vector<int64_t>{0, begin, 0}));
    offset += part.elements();
    begin += part.extent[1];
  }
  EXPECT_EQ(begin, 7);
  EXPECT_EQ(split_box(box, 21).size(), 1U);
  EXPECT_EQ(split_box(box, 1).size(), 7U) << "a row is never cut";
  EXPECT_EQ(split_box(whole_box({"scalar", {}, 0}), 1).size(), 1U);
}

}  // namespace
}  // namespace muster::trainer

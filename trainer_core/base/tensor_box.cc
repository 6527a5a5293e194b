#include "trainer_core/base/tensor_box.h"

#include <algorithm>
#include <utility>

#include "trainer_core/base/check.h"

namespace muster::trainer {

int64_t TensorBox::elements() const {
  int64_t n = 1;
  for (const int64_t size : extent) n *= size;
  return n;
}

TensorBox whole_box(const TensorRow& row) {
  return {row.name,  row.shape,  std::vector<int64_t>(row.shape.size()),
          row.shape, row.offset, row.dtype};
}

std::vector<TensorBox> boxes_of_rows(const std::vector<TensorRow>& rows) {
  std::vector<TensorBox> boxes;
  boxes.reserve(rows.size());
  for (const TensorRow& row : rows) boxes.push_back(whole_box(row));
  return boxes;
}

ShardedTensors ShardedTensors::whole(std::vector<TensorRow> rows) {
  const std::vector<TensorBox> boxes = boxes_of_rows(rows);
  return {.tensors = std::move(rows), .held = boxes, .written = boxes};
}

std::vector<TensorBox> split_box(const TensorBox& box, int64_t elements_max) {
  const auto wide =
      std::find_if(box.extent.begin(), box.extent.end(), [](int64_t extent) { return extent > 1; });
  if (wide == box.extent.end() || box.elements() <= elements_max) return {box};
  const auto dim = static_cast<size_t>(wide - box.extent.begin());
  const int64_t slice = box.elements() / *wide;  // elements of one index of that dimension
  const int64_t step = std::max<int64_t>(1, elements_max / slice);
  std::vector<TensorBox> parts;
  for (int64_t i = 0; i < *wide; i += step) {
    TensorBox part = box;
    part.begin[dim] += i;
    part.extent[dim] = std::min(step, *wide - i);
    part.offset += i * slice;
    parts.push_back(std::move(part));
  }
  return parts;
}

namespace {

// Appends the boxes of a range of `box`, whose dimensions before `dim` have one index.
void add_range(const TensorBox& box, size_t dim, int64_t first, int64_t count,
               std::vector<TensorBox>& boxes) {
  if (count == 0) return;
  if (count == box.elements()) {
    boxes.push_back(box);
    return;
  }
  const int64_t slice = box.elements() / box.extent[dim];
  const auto slices = [&](int64_t begin, int64_t extent) {
    TensorBox part = box;
    part.begin[dim] += begin;
    part.extent[dim] = extent;
    part.offset += begin * slice;
    return part;
  };
  int64_t at = first / slice;
  if (const int64_t before = first % slice; before > 0) {
    const int64_t rest = std::min(count, slice - before);
    add_range(slices(at, 1), dim + 1, before, rest, boxes);
    count -= rest;
    ++at;
  }
  if (const int64_t whole = count / slice; whole > 0) {
    boxes.push_back(slices(at, whole));
    at += whole;
  }
  if (count % slice > 0) add_range(slices(at, 1), dim + 1, 0, count % slice, boxes);
}

}  // namespace

std::vector<TensorBox> boxes_of_range(const TensorBox& box, int64_t first, int64_t count) {
  MUSTER_CHECK(first >= 0 && count >= 0 && first + count <= box.elements())
      << box.tensor << ": " << count << " elements from " << first;
  std::vector<TensorBox> boxes;
  add_range(box, 0, first, count, boxes);
  return boxes;
}

bool overlap(const TensorBox& a, const TensorBox& b) {
  for (size_t d = 0; d < a.begin.size(); ++d) {
    if (a.begin[d] + a.extent[d] <= b.begin[d] || b.begin[d] + b.extent[d] <= a.begin[d])
      return false;
  }
  return true;
}

CommonRuns::CommonRuns(const TensorBox& from, const TensorBox& to) {
  MUSTER_CHECK(from.shape == to.shape && overlap(from, to)) << from.tensor;
  int64_t from_stride = 1, to_stride = 1;
  bool inside_run = true;  // all later dimensions are complete in both boxes
  for (size_t d = from.shape.size(); d-- > 0;) {
    const int64_t begin = std::max(from.begin[d], to.begin[d]);
    const int64_t extent =
        std::min(from.begin[d] + from.extent[d], to.begin[d] + to.extent[d]) - begin;
    origin_.from += (begin - from.begin[d]) * from_stride;
    origin_.to += (begin - to.begin[d]) * to_stride;
    if (inside_run) {
      length_ *= extent;
    } else {
      outer_.insert(outer_.begin(), {extent, from_stride, to_stride});
      count_ *= extent;
    }
    inside_run = inside_run && extent == from.extent[d] && extent == to.extent[d];
    from_stride *= from.extent[d];
    to_stride *= to.extent[d];
  }
}

CommonRuns::Run CommonRuns::at(int64_t run) const {
  Run position = origin_;
  for (size_t d = outer_.size(); d-- > 0;) {
    const int64_t index = run % outer_[d].extent;
    run /= outer_[d].extent;
    position.from += index * outer_[d].from_stride;
    position.to += index * outer_[d].to_stride;
  }
  return position;
}

int64_t CommonRuns::first_after(int64_t element) const {
  int64_t low = 0, high = count_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (at(middle).from + length_ > element) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace muster::trainer

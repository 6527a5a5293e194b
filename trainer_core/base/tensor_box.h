// Boxes of tensors: the part of a tensor that a file holds, a rank trains or a reader requests.
// Saving and restoring only use boxes, so a checkpoint fits any mesh: a reader takes the
// intersection of its boxes with the stored ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer_core/base/tensor_row.h"

namespace muster::trainer {

struct TensorBox {
  std::string tensor;
  std::vector<int64_t> shape;   // the full tensor's shape
  std::vector<int64_t> begin;   // per dimension
  std::vector<int64_t> extent;  // per dimension
  // Offset of the box in its holder's block, where it is dense and row-major; in elements from the
  // block's start.
  int64_t offset = 0;
  DType dtype = DType::kF32;

  int64_t elements() const;

  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// Returns the box of a complete tensor.
TensorBox whole_box(const TensorRow& row);
std::vector<TensorBox> whole_boxes(const std::vector<TensorRow>& rows);

// Tensors of which this rank stores parts, in a flat block of its own.
struct ShardedTensors {
  // The complete tensors, however they are sharded; offsets are those of a single rank.
  std::vector<TensorRow> tensors;
  // The boxes that this rank stores and reads from a checkpoint, with offsets in its block.
  std::vector<TensorBox> held;
  // Those of them that it writes to a checkpoint: each element has one writer.
  std::vector<TensorBox> written;

  // Returns the layout of a rank that stores all tensors.
  static ShardedTensors whole(std::vector<TensorRow> rows);
};

// Splits the box into consecutive boxes of at most `elements_max`, as far as its first dimension of
// more than one allows. Each of them is dense in the same block.
std::vector<TensorBox> split_box(const TensorBox& box, int64_t elements_max);

// Returns elements [first, first + count) of the box as boxes, ascending and each dense in the same
// block: at most 2 n - 1 for n dimensions, since a range consists of complete slices between two
// partial ones, recursively.
std::vector<TensorBox> boxes_of_range(const TensorBox& box, int64_t first, int64_t count);

// Returns whether two boxes of one tensor share an element.
bool overlap(const TensorBox& a, const TensorBox& b);

// The intersection of two boxes of one tensor, as runs of equal length that are contiguous and
// ascending in both.
class CommonRuns {
 public:
  struct Run {
    int64_t from;  // elements from the first box's start
    int64_t to;    // elements from the second one's
  };

  // Requires overlap(from, to).
  CommonRuns(const TensorBox& from, const TensorBox& to);

  int64_t count() const { return count_; }
  int64_t length() const { return length_; }
  Run at(int64_t run) const;
  // Returns the first run that ends after `element` of the first box; count() if none does.
  int64_t first_behind(int64_t element) const;

 private:
  struct Dimension {
    int64_t extent;       // the intersection's extent
    int64_t from_stride;  // elements
    int64_t to_stride;
  };
  std::vector<Dimension> outer_;  // outermost first; the others are within a run
  Run origin_{0, 0};
  int64_t count_ = 1;
  int64_t length_ = 1;
};

}  // namespace muster::trainer

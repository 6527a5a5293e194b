// A box is a rectangular part of a tensor: the part that a file contains, a rank trains or a reader
// requests. Saving and restoring use only boxes, so a checkpoint can be restored on any mesh: a
// reader copies the intersection of its boxes with the stored ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer_core/base/tensor_row.h"

namespace muster::trainer {

struct TensorBox {
  std::string tensor;
  std::vector<int64_t> shape;   // the full tensor's shape
  std::vector<int64_t> begin;   // first index of each dimension
  std::vector<int64_t> extent;  // number of indices of each dimension
  // Offset of the box in the flat block of its file, rank or reader, in elements from the block's
  // start. The box is dense and row-major there.
  int64_t offset = 0;
  DType dtype = DType::kF32;

  int64_t elements() const;

  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// Returns the box of a complete tensor.
TensorBox whole_box(const TensorRow& row);
// Returns the box of each complete tensor, in the order of `rows`.
std::vector<TensorBox> boxes_of_rows(const std::vector<TensorRow>& rows);

// The tensors of a model or an optimizer, and the parts of them that this rank stores in its flat
// block.
struct ShardedTensors {
  // The complete tensors, with the offsets that they would have in the block of a single rank.
  std::vector<TensorRow> tensors;
  // The boxes that this rank stores, and reads from a checkpoint; with offsets in its block.
  std::vector<TensorBox> held;
  // The part of `held` that this rank writes to a checkpoint: each element is written by exactly
  // one rank.
  std::vector<TensorBox> written;

  // Returns the layout of a rank that stores all tensors.
  static ShardedTensors whole(std::vector<TensorRow> rows);
};

// Splits the box into consecutive boxes of at most `elements_max` elements, along its first
// dimension with an extent above 1. A resulting box is larger if a single index of that dimension
// has more elements. Each result is dense in the same block.
std::vector<TensorBox> split_box(const TensorBox& box, int64_t elements_max);

// Returns boxes that together have the elements [first, first + count) of `box` in row-major order.
// They ascend, and each is dense in the same block. A box of n dimensions gives at most 2 n - 1
// boxes: a range consists of complete slices between two partial slices, which are divided in the
// same way.
std::vector<TensorBox> boxes_of_range(const TensorBox& box, int64_t first, int64_t count);

// Returns whether two boxes of one tensor share an element.
bool overlap(const TensorBox& a, const TensorBox& b);

// The intersection of two boxes of one tensor, as a sequence of equally long runs. Each run is
// contiguous in the blocks of both boxes, and runs ascend in both.
class CommonRuns {
 public:
  struct Run {
    int64_t from;  // elements from the first box's start
    int64_t to;    // elements from the second box's start
  };

  // Requires overlap(from, to).
  CommonRuns(const TensorBox& from, const TensorBox& to);

  int64_t count() const { return count_; }    // number of runs
  int64_t length() const { return length_; }  // elements of a run
  // Returns the positions of a run. Requires run < count().
  Run at(int64_t run) const;
  // Returns the index of the first run that ends after `element`, an index into the first box's
  // elements; count() if there is none.
  int64_t first_after(int64_t element) const;

 private:
  struct Dimension {
    int64_t extent;       // the intersection's extent
    int64_t from_stride;  // elements
    int64_t to_stride;
  };
  std::vector<Dimension> outer_;  // outermost first; the remaining dimensions are within a run
  Run origin_{0, 0};
  int64_t count_ = 1;
  int64_t length_ = 1;
};

}  // namespace muster::trainer

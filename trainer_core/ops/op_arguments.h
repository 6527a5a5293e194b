// Small argument types that several parts of the op table share.
#pragma once

#include <cstdint>

namespace muster::trainer {

// Scratch memory for one call; its contents are undefined afterwards. ops/workspace.h has the
// required sizes.
struct Workspace {
  float* data = nullptr;
  int64_t elements = 0;
};

// kYes: a result, usually a parameter's gradient, is added to the existing value instead of stored.
enum class Accumulate : uint8_t { kNo, kYes };

// Options of the loss (see ModelConfig); 0: off.
struct LossShape {
  double soft_cap = 0;
  double z_loss = 0;
};

// The ids of a rank's table rows or logits columns: a part of the vocabulary, consecutive ids from
// `first` on.
struct VocabularySlice {
  int64_t first = 0;
  int64_t whole = 0;  // V, the size of the vocabulary; 0: the slice is the whole vocabulary

  // Returns the number of ids in the vocabulary, which is the exclusive bound of all valid ids.
  // `slice`: number of ids in the slice.
  int64_t ids(int64_t slice) const { return whole == 0 ? first + slice : whole; }
};

}  // namespace muster::trainer

// Small argument types that several parts of the op table share.
#pragma once

#include <cstdint>

namespace muster::trainer {

// Scratch whose contents do not survive the call; sizes come from ops/workspace.h.
struct Workspace {
  float* data = nullptr;
  int64_t elements = 0;
};

// Whether a result, usually a parameter's gradient, is stored or added to the existing value.
enum class Accumulate : uint8_t { kNo, kYes };

// Additional terms of the loss beside the cross entropy: see ModelConfig.
struct LossShape {
  double soft_cap = 0;
  double z_loss = 0;
};

// The ids of a table's rows or of logits' columns: consecutive from `first` on.
struct VocabularySlice {
  int64_t first = 0;
  int64_t whole = 0;  // V: ids are below it; 0: there are no ids beside the slice's

  int64_t ids(int64_t slice) const { return whole == 0 ? first + slice : whole; }
};

}  // namespace muster::trainer

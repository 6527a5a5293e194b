// Small arguments that ops of several parts of the table take.
#pragma once

#include <cstdint>

namespace muster::trainer {

// Scratch whose contents do not survive the call; sizes come from ops/workspace.h.
struct Workspace {
  float* data = nullptr;
  int64_t elements = 0;
};

// Of a result, above all a parameter's gradient: written, or added to what is there.
enum class Accumulate : uint8_t { kNo, kYes };

// What the loss does beside the cross entropy: see ModelConfig.
struct LossShape {
  double soft_cap = 0;
  double z_loss = 0;
};

// Which ids the rows of a table, or the columns of logits, are: those from `first` on.
struct VocabularySlice {
  int64_t first = 0;
  int64_t whole = 0;  // V: ids are below it; 0: there are no ids beside the slice's

  int64_t ids(int64_t slice) const { return whole == 0 ? first + slice : whole; }
};

}  // namespace muster::trainer

// A named tensor of a flat block. Parameters and optimizer state are lists of rows, packed without
// gaps, except that bf16 tensors are padded to a multiple of 4 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer_core/base/dtype.h"

namespace muster::trainer {

struct TensorRow {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // from the block's start, in elements of `dtype`
  DType dtype = DType::kF32;

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t dim : shape) n *= dim;
    return n;
  }
};

}  // namespace muster::trainer

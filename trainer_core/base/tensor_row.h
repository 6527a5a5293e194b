// One named tensor of a flat fp32 block: parameters and optimizer state are tables of such rows, packed without gaps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::trainer {

struct TensorRow {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // in elements, within the block

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t dim : shape) n *= dim;
    return n;
  }
};

}  // namespace muster::trainer

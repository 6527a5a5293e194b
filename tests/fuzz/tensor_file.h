// Files of named tensors: every listed tensor is inside the file and can be read.
#pragma once

#include <vector>

#include "tests/fuzz/target.h"
#include "trainer_core/checkpoint/stored_tensor.h"

namespace muster::trainer {

// `read(file, tensor, numbers)` fills in the elements of a tensor.
template <class File, class Read>
int fuzz_tensor_file(const uint8_t* data, size_t size, const Read& read) {
  const FuzzFile file(fuzz_input(data, size));
  const auto opened = File::open(file.path());
  if (!opened.ok()) return 0;
  for (const auto& [name, tensor] : (*opened)->tensors()) {
    if (tensor.stored == StoredType::kOther) continue;
    MUSTER_CHECK(tensor.elements <= size)
        << name << " of " << tensor.elements << " numbers in " << size << " bytes";
    std::vector<float> numbers(tensor.elements);
    if (!read(**opened, tensor, numbers).ok()) return 0;  // the file has another format
  }
  return 0;
}

}  // namespace muster::trainer

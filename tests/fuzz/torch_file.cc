// A .pth file: zip, pickle, and the tensors that they say are there.
#include "trainer_core/checkpoint/torch_file.h"

#include <vector>

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  const FuzzFile file(fuzz_input(data, size));
  const auto opened = TorchFile::open(file.path());
  if (!opened.ok()) return 0;
  for (const auto& [name, tensor] : (*opened)->tensors()) {
    if (tensor.stored == StoredType::kOther) continue;
    MUSTER_CHECK(tensor.elements <= size)
        << name << " of " << tensor.elements << " numbers in " << size << " bytes";
    std::vector<float> numbers(tensor.elements);
    (*opened)->read(tensor, 0, numbers);
  }
  return 0;
}

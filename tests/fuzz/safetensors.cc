// A safetensors file, and the tensors that its header says are there.
#include "trainer_core/checkpoint/safetensors.h"

#include <vector>

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  const FuzzFile file(fuzz_input(data, size));
  const auto opened = SafetensorsFile::open(file.path());
  if (!opened.ok()) return 0;
  for (const auto& [name, tensor] : (*opened)->tensors()) {
    if (tensor.stored == StoredType::kOther) continue;
    MUSTER_CHECK(tensor.elements <= size)
        << name << " of " << tensor.elements << " numbers in " << size << " bytes";
    std::vector<float> numbers(tensor.elements);
    (*opened)->read(tensor, numbers);
  }
  return 0;
}

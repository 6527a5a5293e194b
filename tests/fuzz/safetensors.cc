// A safetensors file, and the tensors that its header lists.
#include "trainer_core/checkpoint/safetensors.h"

#include "tests/fuzz/tensor_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  return fuzz_tensor_file<SafetensorsFile>(
      data, size,
      [](const auto& file, const auto& tensor, auto& out) { return file.read(tensor, out); });
}

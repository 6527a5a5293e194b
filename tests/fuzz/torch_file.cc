// A .pth file: zip, pickle, and the tensors that they list.
#include "trainer_core/checkpoint/foreign/torch_file.h"

#include "tests/fuzz/tensor_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  return fuzz_tensor_file<TorchFile>(
      data, size,
      [](const auto& file, const auto& tensor, auto& out) { return file.read(tensor, 0, out); });
}

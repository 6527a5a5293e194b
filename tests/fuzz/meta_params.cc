// Meta's params.json, beside the two files of a model.
#include "tests/fuzz/target.h"
#include "trainer_core/checkpoint/foreign/meta_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  static const FuzzFolder folder(
      {"meta/llama2/consolidated.00.pth", "meta/llama2/consolidated.01.pth"});
  const auto source =
      open_meta(folder.with(kMetaParamsFile, fuzz_input(data, size)), UnusedTensorPolicy::kRefuse);
  if (!source.ok()) return 0;
  for (const HuggingFaceTensor& tensor : (*source)->tensors()) {
    std::vector<float> numbers(static_cast<size_t>(tensor.elements()));
    MUSTER_CHECK((*source)->read(tensor, numbers).ok()) << tensor.name;
  }
  return 0;
}

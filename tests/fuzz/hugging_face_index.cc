// model.safetensors.index.json of a Hugging Face folder, beside a model of two files.
#include "tests/fuzz/target.h"
#include "trainer_core/checkpoint/foreign/hugging_face.h"
#include "trainer_core/checkpoint/parameter_source.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  const std::string golden = "hugging_face/mistral/";
  static const FuzzFolder folder({golden + "config.json",
                                  golden + "model-00001-of-00002.safetensors",
                                  golden + "model-00002-of-00002.safetensors"});
  const auto source = open_hugging_face(folder.with(kHuggingFaceIndexFile, fuzz_input(data, size)));
  if (!source.ok()) return 0;
  for (const HuggingFaceTensor& tensor : (*source)->tensors()) {
    std::vector<float> numbers(static_cast<size_t>(tensor.elements()));
    MUSTER_CHECK((*source)->read(tensor, numbers).ok()) << tensor.name;
  }
  return 0;
}

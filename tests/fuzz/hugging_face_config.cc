// config.json of a Hugging Face folder: rejected, or a model whose tensors can be listed.
#include "tests/fuzz/target.h"
#include "trainer_core/checkpoint/foreign/hugging_face.h"
#include "trainer_core/model/param_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  static const FuzzFolder folder;
  const auto config =
      read_hugging_face_config(folder.with(kHuggingFaceConfigFile, fuzz_input(data, size)));
  if (!config.ok()) return 0;
  const auto params = model_params(config->model);
  int64_t end = 0;
  for (const HuggingFaceTensor& tensor : hugging_face_tensors(config->model, params)) {
    MUSTER_CHECK(tensor.offset == end && tensor.elements() > 0) << tensor.name;
    end += tensor.elements();
  }
  return 0;
}

// A tokenizer.json: rejected, or a tokenizer whose ids are in its vocabulary and have a text.
#include "tests/fuzz/target.h"
#include "trainer_core/base/check.h"
#include "trainer_core/data/hugging_face_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tokenizer =
      muster::trainer::load_hugging_face(muster::trainer::fuzz_input(data, size), "/nonexistent");
  if (!tokenizer.ok()) return 0;
  const auto ids = (*tokenizer)->encode("The ranks'  1234 世界\r\n<|end_of_text|>é");
  if (ids.ok()) MUSTER_CHECK((*tokenizer)->decode(*ids).ok());
  return 0;
}

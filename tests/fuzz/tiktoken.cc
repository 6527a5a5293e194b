// A rank file: rejected, or a tokenizer that decodes every text to itself.
#include "trainer_core/data/tiktoken.h"

#include "tests/fuzz/target.h"
#include "trainer_core/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  const std::string_view input = fuzz_input(data, size);
  (void)looks_like_tiktoken(input);
  const auto tokenizer = load_tiktoken(input, "llama3");
  if (!tokenizer.ok()) return 0;
  const std::string text = "The ranks'  1234 世界\r\n<|end_of_text|>é";
  const auto ids = (*tokenizer)->encode(text);
  MUSTER_CHECK(ids.ok());
  const auto decoded = (*tokenizer)->decode(*ids);
  MUSTER_CHECK(decoded.ok() && *decoded == text);
  return 0;
}

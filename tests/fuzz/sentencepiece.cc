// A SentencePiece model: rejected, or usable for encoding and decoding.
#include "tests/fuzz/target.h"
#include "trainer_core/data/sentencepiece_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  const auto tokenizer = load_sentencepiece(fuzz_input(data, size));
  if (!tokenizer.ok()) return 0;
  const auto ids = (*tokenizer)->encode("The ranks'  1234 世界\r\n<s>ﬁ½é\xe2\x96\x81 x");
  if (ids.ok()) (void)(*tokenizer)->decode(*ids);
  return 0;
}

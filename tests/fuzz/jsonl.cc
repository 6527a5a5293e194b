// A line of JSON: rejected, or a text in UTF-8.
#include "tests/fuzz/target.h"
#include "trainer_core/base/check.h"
#include "trainer_core/data/utf8.h"
#include "trainer_core/text/document_text.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  static TextExtractor texts("text");
  Chunk chunk;
  chunk.bytes = fuzz_input(data, size);
  chunk.bytes.append(Chunk::kPaddingBytes, '\0');
  Record record;
  record.size = size;
  const auto text = texts.text_of(chunk, record, InputFormat::kJsonLines);
  if (text.ok()) MUSTER_CHECK(scan_utf8(text->text).invalid_bytes == 0);
  return 0;
}

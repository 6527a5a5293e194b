// A TFRecord file, and the same bytes as a tf.train.Example, which the checksums would keep from
// the fuzzer.
#include "tests/fuzz/target.h"
#include "trainer_core/base/check.h"
#include "trainer_core/text/document_text.h"
#include "trainer_core/text/tfrecord_chunks.h"

namespace {

using namespace muster::trainer;

void read_example(std::string_view bytes) {
  const auto text = bytes_feature(bytes, "text");
  if (!text.ok() || text->empty()) return;
  MUSTER_CHECK(text->data() >= bytes.data() &&
               text->data() + text->size() <= bytes.data() + bytes.size());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz_input(data, size);
  read_example(input);
  const InputFile file{"input.tfrecord", InputFormat::kTfRecord, size, 0};
  TfRecordChunks chunks(file, ByteWindow(std::make_unique<FuzzSource>(input), 0), {});
  for (;;) {
    Chunk chunk;
    const auto more = chunks.next(chunk);
    if (!more.ok() || !*more) break;
    for (const Record& record : chunk.records) {
      if (record.flaw != Flaw::kNone) continue;
      const auto example = record_data(chunk.text(record));
      if (example.ok()) read_example(*example);
    }
  }
  return 0;
}

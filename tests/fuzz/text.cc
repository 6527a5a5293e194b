// Lines, paragraphs and files: only line ends and blanks are lost, and repaired text is UTF-8.
#include "tests/fuzz/target.h"
#include "trainer_core/base/check.h"
#include "trainer_core/data/utf8.h"
#include "trainer_core/text/line_chunks.h"

namespace {

// Returns the first byte of a line without the byte order marks that begin it.
char first_byte(std::string_view line) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  while (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  return line.empty() ? '\0' : line[0];
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  const std::string_view input = fuzz_input(data, size);
  const InputFile file{"input.txt", InputFormat::kText, size, 0};
  for (const DocumentUnit documents :
       {DocumentUnit::kLines, DocumentUnit::kParagraphs, DocumentUnit::kFiles}) {
    ByteWindow bytes(std::make_unique<FuzzSource>(input), 0);
    if (!pass_beginning(file, bytes).ok()) return 0;
    LineChunks chunks(file, documents, std::move(bytes), {});
    for (;;) {
      Chunk chunk;
      const auto more = chunks.next(chunk);
      MUSTER_CHECK(more.ok());
      if (!*more) break;
      MUSTER_CHECK(chunk.end.offset <= size);
      for (const Record& record : chunk.records) {
        const std::string_view text = chunk.text(record);
        MUSTER_CHECK(text.size() == record.size && record.size <= kDocumentBytesMax);
        MUSTER_CHECK(record.offset < size && first_byte(input.substr(record.offset)) == text[0]);
        const std::string repaired = repair_utf8(text);
        MUSTER_CHECK(scan_utf8(repaired).invalid_bytes == 0 && repair_utf8(repaired) == repaired);
      }
    }
  }
  return 0;
}

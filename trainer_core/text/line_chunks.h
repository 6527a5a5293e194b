// Reads chunks of text and of JSON lines.
#pragma once

#include <string_view>

#include "trainer_core/text/byte_window.h"
#include "trainer_core/text/chunk.h"

namespace muster::trainer {

// Skips UTF-8's byte order mark at the beginning of a file. InvalidArgument for UTF-16's or
// UTF-32's, and for a file of JSON lines that begins as one JSON value over several lines; the
// message has the command that converts it.
absl::Status pass_beginning(const InputFile& file, ByteWindow& bytes);

// Lines end with "\n" or "\r\n". Byte order marks at the beginning of a line, which files that were
// joined have, are left out. Documents of a text longer than kDocumentBytesMax are cut, before
// a blank if one is near; longer JSON lines are a flaw.
class LineChunks : public ChunkReader {
 public:
  LineChunks(const InputFile& file, TextDocuments documents, ByteWindow bytes,
             const Position& from);

  absl::StatusOr<bool> next(Chunk& chunk) override;

 private:
  enum class Kind { kLines, kJsonLines, kParagraphs, kFiles };

  struct Line {
    std::string_view text;  // valid until the next call of look()
    size_t bytes = 0;       // including the line ending
    bool is_cut = false;
    uint32_t marks = 0;  // byte order marks before the text
  };

  // Peeks at the next line; take() consumes it. Returns false at the end.
  absl::StatusOr<bool> look(Line& line);
  void take(const Line& line);
  absl::Status skip_rest_of_line();
  // Add the line to the chunk.
  absl::Status add_record(const Line& line, Chunk& chunk);
  void add_to_document(const Line& line, Chunk& chunk);
  bool is_full(const Line& line, const Chunk& chunk) const;

  const Kind kind_;
  ByteWindow bytes_;
  uint64_t line_;             // the next line's number
  bool in_document_ = false;  // whether the chunk's last record may get more lines
};

}  // namespace muster::trainer

// Reads chunks of plain text files and of JSON lines.
#pragma once

#include <string_view>

#include "trainer_core/text/byte_window.h"
#include "trainer_core/text/chunk.h"

namespace muster::trainer {

// Skips a byte order mark of UTF-8 at the beginning of a file. Returns InvalidArgument if the file
// begins with that of UTF-16 or UTF-32, and if a file of JSON lines begins with one JSON value over
// several lines; the message has the command that converts it.
absl::Status pass_beginning(const InputFile& file, ByteWindow& bytes);

// Reads a file line by line; lines end with "\n" or "\r\n". Leaves out byte order marks at the
// beginning of a line, which joined files have. A plain text document longer than kDocumentBytesMax
// is cut, before a blank if there is one near the cut. A longer JSON line is Flaw::kTooLong.
class LineChunks : public ChunkReader {
 public:
  LineChunks(const InputFile& file, DocumentUnit documents, ByteWindow bytes, const Position& from);

  absl::StatusOr<bool> next(Chunk& chunk) override;

 private:
  enum class Kind { kLines, kJsonLines, kParagraphs, kFiles };

  struct Line {
    std::string_view text;  // valid until the next call of peek_line()
    size_t bytes = 0;       // including the line ending
    bool is_cut = false;
    uint32_t marks = 0;  // byte order marks before the text
  };

  // Stores the next line without consuming it. Returns false at the end of the file.
  absl::StatusOr<bool> peek_line(Line& line);
  // Consumes the line that peek_line() has stored.
  void take(const Line& line);
  absl::Status skip_rest_of_line();
  // Adds the line to the chunk as a record of its own (add_record) or as a part of the last record
  // (add_to_document).
  absl::Status add_record(const Line& line, Chunk& chunk);
  void add_to_document(const Line& line, Chunk& chunk);
  bool is_full(const Line& line, const Chunk& chunk) const;

  const Kind kind_;
  ByteWindow bytes_;
  uint64_t line_;             // index of the next line, from 0
  bool in_document_ = false;  // more lines may belong to the chunk's last record
};

}  // namespace muster::trainer

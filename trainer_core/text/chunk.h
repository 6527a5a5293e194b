// A chunk is a sequence of records of one file, and the unit of work of a tokenizer thread. Chunk
// boundaries depend only on the input, neither on the number of threads nor on the position from
// which a run resumed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/text/input_files.h"

namespace muster::trainer {

// The minimum bytes of a chunk, except of the last one of a file: a chunk ends with the first
// document with which it reaches this size. The size is large enough to amortise the hand-over
// between threads, and small enough for frequent progress and for shards of about the requested
// size.
constexpr size_t kChunkBytes = 256 << 10;
// Maximum bytes of a document and of a record, several times those of the longest book. The bound
// exists because tokenizers need tens of bytes of memory per byte of text. A longer plain text is
// split into several documents; a longer record of another format is Flaw::kTooLong.
constexpr size_t kDocumentBytesMax = 16 << 20;

// The division of a plain text file into documents.
enum class DocumentUnit {
  kLines,       // one per line; blank lines are skipped
  kParagraphs,  // separated by blank lines
  kFiles,       // one per file
};
constexpr ValueNames<3> kTextDocumentsNames = {"lines", "paragraphs", "files"};

// The options that determine a corpus's documents.
struct ReadOptions {
  DocumentUnit documents = DocumentUnit::kLines;
  std::string field = "text";  // the field with the text, in JSON lines, TFRecord and Parquet
};

// The position of the next unread record in a list of input files.
struct Position {
  size_t file = 0;      // index in the list
  uint64_t offset = 0;  // in the decompressed bytes of the file
  uint64_t record = 0;  // index of the record (line, TFRecord or row) in the file, from 0
};

// A defect that makes a record unusable: it is too long (kTooLong), or its text is null (kNull).
enum class Flaw { kNone, kTooLong, kNull };

// A record of a chunk. For paragraphs and files, a record is a document.
struct Record {
  size_t begin = 0;  // offset in Chunk::bytes
  size_t size = 0;
  uint64_t offset = 0;
  uint64_t number = 0;      // index in the file, as Position::record
  bool is_cut = false;      // the text was too long and continues in the next record
  Flaw flaw = Flaw::kNone;  // if set, `size` is 0
  uint32_t marks = 0;       // byte order marks that were left out of the text
};

// A chunk with its records and their bytes.
struct Chunk {
  size_t file = 0;        // index in the list of input files
  bool is_first = false;  // the first chunk of its file
  std::string bytes;      // the records, and kPaddingBytes readable bytes after them
  std::vector<Record> records;
  Position end;                // position of the first record after the chunk
  uint64_t file_position = 0;  // bytes of the file on disk that were consumed

  // The bytes beyond a record that the wide loads of the JSON parser may read.
  static constexpr size_t kPaddingBytes = 64;
  // Returns the bytes of a record.
  std::string_view text(const Record& record) const {
    return std::string_view(bytes).substr(record.begin, record.size);
  }
};

// Reads the chunks of one file in order. Not thread-safe.
class ChunkReader {
 public:
  // Opens a file at `from`. Requires that `from` is the beginning of this file or the end of one of
  // its chunks. Returns the system's error, or InvalidArgument for text in UTF-16; both messages
  // contain the path.
  static absl::StatusOr<std::unique_ptr<ChunkReader>> open(const InputFile& file,
                                                           const ReadOptions& options,
                                                           const Position& from);
  virtual ~ChunkReader() = default;

  // Reads the next chunk. Returns false at the end of the file, and DataLoss with the path and the
  // offset from which the file cannot be read. Requires that `chunk` is empty.
  virtual absl::StatusOr<bool> next(Chunk& chunk) = 0;
};

// Reads the chunks of all files in order. Not thread-safe.
class ChunkStream {
 public:
  // Begins at `from`. `files` must outlive the stream.
  ChunkStream(const std::vector<InputFile>& files, ReadOptions options, const Position& from)
      : files_(files), options_(std::move(options)), at_(from) {}

  // Reads the next chunk. Returns false at the end of the last file.
  absl::StatusOr<bool> next(Chunk& chunk);

 private:
  const std::vector<InputFile>& files_;
  const ReadOptions options_;
  Position at_;
  std::unique_ptr<ChunkReader> reader_;
};

// Formats the place of a record for messages: "corpus/a.jsonl:17 (byte 3051)",
// "c4.tfrecord-00000-of-01024, record 17 (byte 3051)" or "a.parquet, row 17". Lines, records and
// rows are counted from 1 there.
std::string location_of(const InputFile& file, const Record& record);

}  // namespace muster::trainer

// A piece of a file's records, which one thread tokenizes at a time. Chunk boundaries depend only
// on the input, not on threads or on where a run was resumed.
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

// A chunk ends with the document with which it reaches this size: large enough to amortize the
// hand-over between threads, small enough for progress and for shards of about the requested size.
constexpr size_t kChunkBytes = 256 << 10;
// Maximum size of a document and of a record: several times the longest book. Bounded, because
// tokenizers need tens of bytes of memory per byte. A longer plain text is split into several
// documents; a longer record of another format is Flaw::kTooLong.
constexpr size_t kDocumentBytesMax = 16 << 20;

enum class TextDocuments {
  kLines,       // one per line; blank lines are skipped
  kParagraphs,  // separated by blank lines
  kFiles,       // one per file
};
constexpr ValueNames<3> kTextDocumentsNames = {"lines", "paragraphs", "files"};

struct ReadOptions {
  TextDocuments documents = TextDocuments::kLines;
  std::string field = "text";  // for JSON lines, TFRecord and Parquet
};

// The position of the next unread record. Offsets count the decompressed bytes of its file.
struct Position {
  size_t file = 0;
  uint64_t offset = 0;
  uint64_t record = 0;  // index in the file, from 0: line, TFRecord or row
};

enum class Flaw { kNone, kTooLong, kNull };

struct Record {
  size_t begin = 0;  // in the chunk's bytes
  size_t size = 0;
  uint64_t offset = 0;
  uint64_t number = 0;      // from 0, as in Position
  bool is_cut = false;      // its text continues in the next record
  Flaw flaw = Flaw::kNone;  // if set, `size` is 0
  uint32_t marks = 0;       // byte order marks that were left out of the text
};

struct Chunk {
  size_t file = 0;
  bool is_first = false;  // the first chunk of its file
  std::string bytes;      // readable for kPaddingBytes beyond its records
  std::vector<Record> records;
  Position end;                // where the next chunk begins
  uint64_t file_position = 0;  // consumed bytes of the file on the disk

  // The JSON parser's wide loads read up to this many bytes beyond a record.
  static constexpr size_t kPaddingBytes = 64;
  std::string_view text(const Record& record) const {
    return std::string_view(bytes).substr(record.begin, record.size);
  }
};

// Reads one file's chunks, in order. Not thread-safe.
class ChunkReader {
 public:
  // Requires: `from` is the beginning of this file, or the end of an earlier chunk. Errors:
  // NotFound and the like, and InvalidArgument for text in UTF-16; messages name the file.
  static absl::StatusOr<std::unique_ptr<ChunkReader>> open(const InputFile& file,
                                                           const ReadOptions& options,
                                                           const Position& from);
  virtual ~ChunkReader() = default;

  // Returns false at the end of the file. DataLoss names the file and the offset from which it
  // cannot be read. Requires: `chunk` is empty.
  virtual absl::StatusOr<bool> next(Chunk& chunk) = 0;
};

// Reads all files' chunks, in order. Not thread-safe.
class ChunkStream {
 public:
  // `files` outlives the stream.
  ChunkStream(const std::vector<InputFile>& files, ReadOptions options, const Position& from)
      : files_(files), options_(std::move(options)), at_(from) {}

  // Returns false at the end of the last file.
  absl::StatusOr<bool> next(Chunk& chunk);

 private:
  const std::vector<InputFile>& files_;
  const ReadOptions options_;
  Position at_;
  std::unique_ptr<ChunkReader> reader_;
};

// Returns "corpus/a.jsonl:17 (byte 3051)", "c4.tfrecord-00000-of-01024, record 17 (byte 3051)", or
// "a.parquet, row 17"; counted from 1.
std::string location_of(const InputFile& file, const Record& record);

}  // namespace muster::trainer

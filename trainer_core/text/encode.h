// Encodes one chunk's documents into token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/data/tokenizer.h"
#include "trainer_core/text/chunk.h"
#include "trainer_core/text/document_text.h"

namespace muster::trainer {

// The treatment of documents whose text is not UTF-8, and of records without a text: not JSON, no
// such field, a wrong checksum.
enum class BadDocuments {
  kRepair,  // replace what is not UTF-8 by U+FFFD; any other flaw stops the run
  kSkip,    // omit the document
  kStop,    // stop the run
};
constexpr ValueNames<3> kBadDocumentsNames = {"repair", "skip", "stop"};

struct EncodeOptions {
  ReadOptions read;
  BadDocuments bad_documents = BadDocuments::kRepair;
  bool add_eos = true;
};

// Bad documents that the report names, per kind: the others seldom have another problem.
constexpr size_t kExamplesMax = 5;

// Counts documents by outcome.
struct DocumentCounts {
  uint64_t text_bytes = 0;
  uint64_t repaired = 0;
  uint64_t skipped = 0;
  uint64_t cut = 0;    // document ends inside a text that was too long for one document
  uint64_t empty = 0;  // texts without a character that is not blank; they are no documents
  uint64_t marks = 0;  // byte order marks within files, which were left out
  std::vector<std::string> cut_examples;
  std::vector<std::string> empty_examples;
  std::vector<std::string> marks_examples;
  std::vector<std::string> repaired_examples;
  std::vector<std::string> skipped_examples;

  void add(const DocumentCounts& more);
};

// The account of one input file.
struct InputCounts {
  uint64_t documents = 0;
  uint64_t tokens = 0;
  uint64_t file_bytes = 0;  // read on the disk
  DocumentCounts counts;

  void add(const InputCounts& more);
};

struct EncodedChunk {
  absl::Status status;
  std::vector<int32_t> ids;
  std::vector<uint32_t> documents;  // ids per document
  DocumentCounts counts;
  Position end;
  uint64_t file_position = 0;

  // The chunk's part of its file's account. Requires: it is behind all earlier chunks of the file.
  InputCounts input() const;
};

// Not thread-safe.
class ChunkEncoder {
 public:
  // All arguments outlive the encoder.
  ChunkEncoder(const Tokenizer& tokenizer, const std::vector<InputFile>& files,
               const EncodeOptions& options);

  // The result's status names the file and the position of the error: a bad document, or the first
  // chunk of a text file that is not text (NUL bytes, or more than 1 % of bytes that are not
  // UTF-8).
  EncodedChunk encode(const Chunk& chunk);

 private:
  absl::Status add(const Chunk& chunk, const Record& record, EncodedChunk& out);
  absl::Status add_flawed(const absl::Status& flaw, const std::string& place, EncodedChunk& out);

  const Tokenizer& tokenizer_;
  const std::vector<InputFile>& files_;
  const EncodeOptions& options_;
  const std::unique_ptr<Tokenizer::Encoder> encoder_;
  DocumentTexts texts_;
};

}  // namespace muster::trainer

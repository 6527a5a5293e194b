// Encodes the documents of a chunk into token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/data/tokenizer.h"
#include "trainer_core/text/chunk.h"
#include "trainer_core/text/document_text.h"
#include "trainer_core/text/sft_sample.h"

namespace muster::trainer {

// The treatment of bad documents. A document is bad if its text is not UTF-8 or has NUL, or if its
// record has no text: it is not JSON, lacks the field, or has a wrong checksum.
enum class BadDocuments {
  kRepair,  // replace NUL and bytes that are not UTF-8 by U+FFFD; any other defect stops the run
  kSkip,    // omit the document
  kStop,    // stop the run
};
constexpr ValueNames<3> kBadDocumentsNames = {"repair", "skip", "stop"};

// The options of an encoder.
struct EncodeOptions {
  ReadOptions read;
  BadDocuments bad_documents = BadDocuments::kRepair;
  bool add_eos = true;  // append the end-of-sequence id to each document
  // Set for fine-tuning: the records are samples (sft_sample.h), and their tokens have weights.
  std::shared_ptr<const SftFormat> sft;
  bool pairs = false;  // the records are pairs of answers (dpo_sample.h); with `sft` only
};

// The maximum number of examples per kind of bad document that a report lists; further documents of
// a kind seldom have another problem.
constexpr size_t kExamplesMax = 5;

// The numbers of documents with each outcome.
struct DocumentCounts {
  uint64_t text_bytes = 0;
  uint64_t repaired = 0;  // documents with U+FFFD for invalid UTF-8
  uint64_t nuls = 0;      // documents with U+FFFD for NUL; may be among `repaired`, too
  uint64_t skipped = 0;
  uint64_t cut = 0;    // document ends within a text that was too long for one document
  uint64_t empty = 0;  // texts of blanks and zero-width characters
  uint64_t marks = 0;  // byte order marks within files, which are left out
  std::vector<std::string> cut_examples;
  std::vector<std::string> empty_examples;
  std::vector<std::string> marks_examples;
  std::vector<std::string> nuls_examples;
  std::vector<std::string> repaired_examples;
  std::vector<std::string> skipped_examples;

  // Adds counts, and examples up to kExamplesMax per kind.
  void add(const DocumentCounts& more);
};

// A kind of document that is counted with examples.
struct DocumentKind {
  const char* name;
  uint64_t DocumentCounts::*count;
  std::vector<std::string> DocumentCounts::*examples;
};
// The kinds, in the order of the journal's lists.
constexpr DocumentKind kDocumentKinds[] = {
    {"repaired", &DocumentCounts::repaired, &DocumentCounts::repaired_examples},
    {"skipped", &DocumentCounts::skipped, &DocumentCounts::skipped_examples},
    {"cut", &DocumentCounts::cut, &DocumentCounts::cut_examples},
    {"empty", &DocumentCounts::empty, &DocumentCounts::empty_examples},
    {"marks", &DocumentCounts::marks, &DocumentCounts::marks_examples},
    {"nuls", &DocumentCounts::nuls, &DocumentCounts::nuls_examples}};

// The counts of one input file.
struct InputCounts {
  uint64_t documents = 0;
  uint64_t tokens = 0;
  uint64_t file_bytes = 0;  // bytes of the file on disk that were read
  DocumentCounts counts;

  void add(const InputCounts& more);
};

// The result of encoding a chunk.
struct EncodedChunk {
  absl::Status status;  // if not OK, the other fields are unspecified
  std::vector<int32_t> ids;
  std::vector<float> weights;       // a weight per id for fine-tuning, otherwise empty
  std::vector<uint32_t> documents;  // ids per document
  DocumentCounts counts;
  Position end;
  uint64_t file_position = 0;

  // The chunk's part of its file's account. Requires: it is behind all earlier chunks of the file.
  InputCounts input() const;
};

// Encodes chunks. Not thread-safe.
class ChunkEncoder {
 public:
  // All arguments must outlive the encoder.
  ChunkEncoder(const Tokenizer& tokenizer, const std::vector<InputFile>& files,
               const EncodeOptions& options);

  // Encodes a chunk. The status of the result is an error, with the file and the position, for a
  // bad document that must stop the run. It is also an error for the first chunk of a plain text
  // file that is not text: it has NUL bytes, or more than 1 % of its bytes are not UTF-8.
  EncodedChunk encode(const Chunk& chunk);

 private:
  absl::Status add(const Chunk& chunk, const Record& record, EncodedChunk& out);
  absl::Status add_sample(const Chunk& chunk, const Record& record, EncodedChunk& out);
  // Append a sample or a pair, and return the bytes of its text.
  absl::StatusOr<size_t> append_sample(std::string_view json, EncodedChunk& out);
  absl::Status add_flawed(const absl::Status& flaw, const std::string& place, EncodedChunk& out);

  const Tokenizer& tokenizer_;
  const std::vector<InputFile>& files_;
  const EncodeOptions& options_;
  const std::unique_ptr<Tokenizer::Encoder> encoder_;
  TextExtractor texts_;
  std::optional<SftEncoder> samples_;  // for fine-tuning
};

}  // namespace muster::trainer

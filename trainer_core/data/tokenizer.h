// Converts text to token ids and back, with the common files: SentencePiece models (Llama 2, Gemma,
// MaxText, Pax), Hugging Face's tokenizer.json with byte-level BPE (GPT-2, Llama 3) and tiktoken's
// rank files (Llama 3's original, cl100k).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The largest file that is loaded; the biggest in use (256k pieces) has 4 MiB as a model, 17 MiB as
// JSON.
constexpr uint64_t kTokenizerBytesMax = 256ULL << 20;

// Immutable and thread-safe.
class Tokenizer {
 public:
  // The encoding state of one thread; may cache words.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    // Appends the ids of `text` without adding tokens before or after it. Requires: well-formed
    // UTF-8.
    virtual absl::Status append(std::string_view text, std::vector<int32_t>& ids) = 0;
  };

  // Detects the kind of file by its content; a folder stands for the tokenizer.json or
  // tokenizer.model in it. Errors, which name the file: NotFound, or InvalidArgument if it is none
  // of the kinds.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> load(const std::string& path);
  virtual ~Tokenizer() = default;

  // MaxText's tokenizer_type: sentencepiece, huggingface or tiktoken.
  virtual std::string_view type() const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t eos_id() const = 0;  // -1: the file has none
  // FNV-1a of the file: identifies the tokenizer that shards were made with.
  uint64_t fingerprint() const { return fingerprint_; }

  // The encoder must not outlive the tokenizer.
  virtual std::unique_ptr<Encoder> encoder() const = 0;
  // Encodes any bytes: those that are not UTF-8 become U+FFFD.
  absl::StatusOr<std::vector<int32_t>> encode(std::string_view text) const;
  // InvalidArgument for an id outside the vocabulary. Control tokens have no text.
  absl::StatusOr<std::string> decode(std::span<const int32_t> ids) const;

 protected:
  Tokenizer() = default;

 private:
  // Requires: ids are within the vocabulary.
  virtual absl::StatusOr<std::string> text_of(std::span<const int32_t> ids) const = 0;

  uint64_t fingerprint_ = 0;
};

}  // namespace muster::trainer

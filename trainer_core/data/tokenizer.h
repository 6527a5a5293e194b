// Converts text to token ids and back. Three kinds of tokenizer files are supported: SentencePiece
// models (Llama 2, Gemma, MaxText, Pax), Hugging Face's tokenizer.json with byte-level BPE (GPT-2,
// Llama 3), and tiktoken's rank files (Meta's original Llama 3, cl100k).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The maximum size of a tokenizer file. The largest tokenizers in use (256k pieces) have 4 MiB as a
// SentencePiece model and 17 MiB as JSON.
constexpr uint64_t kTokenizerBytesMax = 256ULL << 20;

// A loaded tokenizer. Immutable and thread-safe.
class Tokenizer {
 public:
  // The encoding state of one thread, such as a cache of words. Not thread-safe.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    // Appends the ids of `text` to `ids`, without a beginning- or end-of-sequence token. Requires
    // that `text` is well-formed UTF-8.
    virtual absl::Status append(std::string_view text, std::vector<int32_t>& ids) = 0;
  };

  // Loads a tokenizer file, whose kind is detected by its content. If `path` is a folder, loads the
  // first of its files that can be used: tokenizer.json, tokenizer.model, or a tiktoken file.
  // `encoding` names the encoding of a tiktoken file (tiktoken.h). If it is empty, the file's hash
  // determines the encoding. Returns NotFound if there is no file, and InvalidArgument if no kind
  // fits, or if `encoding` is set and the file is not a tiktoken file. Messages contain the path.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> load(const std::string& path,
                                                         const std::string& encoding = "");
  virtual ~Tokenizer() = default;

  // Returns the value of MaxText's tokenizer_type: sentencepiece, huggingface or tiktoken.
  virtual std::string_view type() const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t eos_id() const = 0;  // end-of-sequence id; -1: the file has none
  // Returns the beginning-of-sequence id of a SentencePiece model or of a tiktoken encoding; -1:
  // there is none. For the other files see text_start.h.
  virtual int32_t bos_id() const { return -1; }
  // Returns the texts and ids of control tokens, the beginning-of-sequence token first, that
  // encode() does not recognize in a text. Templates of conversations contain such texts.
  virtual std::vector<std::pair<std::string, int32_t>> control_tokens() const { return {}; }
  // Returns the FNV-1a hash of the file, and of the encoding if the caller has stated one. Shards
  // store it to identify the tokenizer that made them.
  uint64_t fingerprint() const { return fingerprint_; }
  // The file that was loaded.
  const std::string& file() const { return file_; }
  // "tiktoken o200k_base (known by its SHA-256)", or the type alone.
  std::string description() const;
  // Returns notes for users: the files of the folder that were not used, and differences from the
  // program that made the file.
  const std::vector<std::string>& notes() const { return notes_; }

  // Returns a new encoder, which must not outlive the tokenizer.
  virtual std::unique_ptr<Encoder> encoder() const = 0;
  // Encodes any bytes. Bytes that are not UTF-8 are encoded as U+FFFD.
  absl::StatusOr<std::vector<int32_t>> encode(std::string_view text) const;
  // Returns the text of `ids`. Control tokens have no text. Returns InvalidArgument if an id is
  // outside the vocabulary.
  absl::StatusOr<std::string> decode(std::span<const int32_t> ids) const;

 protected:
  Tokenizer() = default;

 private:
  // Implements decode(). Requires that all ids are in the vocabulary.
  virtual absl::StatusOr<std::string> text_of(std::span<const int32_t> ids) const = 0;

  // The encoding of a tiktoken file and how it is known; empty for other kinds.
  virtual std::string encoding() const { return ""; }
  // Whether load()'s caller has stated the encoding.
  virtual bool encoding_is_stated() const { return false; }

  static absl::StatusOr<std::unique_ptr<Tokenizer>> load_file(const std::string& name,
                                                              const std::string& encoding);

  uint64_t fingerprint_ = 0;
  std::string file_;
  std::vector<std::string> notes_;
};

}  // namespace muster::trainer

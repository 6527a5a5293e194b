// An interface to the SentencePiece library that uses only standard-library types. The headers of
// SentencePiece and of Abseil both declare absl::string_view; on systems where these are different
// types (Debian 12), no source file can include both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace muster::trainer {

// A loaded model. Immutable and thread-safe. encode() and decode() return an error as a sentence,
// empty on success.
class SentencePieceModel {
 public:
  // Loads a serialized model. Returns null if `bytes` are not a model.
  static std::unique_ptr<SentencePieceModel> parse(std::string_view bytes);
  virtual ~SentencePieceModel() = default;

  virtual int32_t pieces() const = 0;  // the vocabulary's size
  // Return the ids of special pieces; -1 if the model has no such piece.
  virtual int32_t unk_id() const = 0;
  virtual int32_t bos_id() const = 0;
  virtual int32_t eos_id() const = 0;
  // Returns the text of a piece. Requires 0 <= id < pieces().
  virtual std::string piece(int32_t id) const = 0;
  virtual std::string encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  virtual std::string decode(const std::vector<int32_t>& ids, std::string& text) const = 0;
};

// Trains a model with the library's `arguments` and stores its bytes in `model`. `next` stores one
// sentence per call and returns false after the last. Returns the error as a sentence, empty on
// success. `log` receives each line that the library logs, on this thread. During the call, `log`
// also receives everything else that the process writes to std::cerr.
std::string train_sentencepiece(const std::unordered_map<std::string, std::string>& arguments,
                                const std::function<bool(std::string&)>& next,
                                const std::function<void(std::string_view)>& log,
                                std::string& model);

}  // namespace muster::trainer

// SentencePiece behind standard-library types only. Its headers and Abseil's both declare
// absl::string_view; where these are different types (Debian 12), no source file can include both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace muster::trainer {

// A loaded model. Immutable and thread-safe. Errors are sentences, empty on success.
class SentencePieceModel {
 public:
  // Returns null if `bytes` are not a model.
  static std::unique_ptr<SentencePieceModel> parse(std::string_view bytes);
  virtual ~SentencePieceModel() = default;

  virtual int32_t pieces() const = 0;
  // Ids of special pieces; -1: the model has none.
  virtual int32_t unk_id() const = 0;
  virtual int32_t bos_id() const = 0;
  virtual int32_t eos_id() const = 0;
  // Requires: `id` is a piece.
  virtual std::string piece(int32_t id) const = 0;
  virtual std::string encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  virtual std::string decode(const std::vector<int32_t>& ids, std::string& text) const = 0;
};

// Trains on the sentences that `next` stores until it returns false. Returns the error; the model's
// bytes go to `model`. `log` receives each line that the library logs, on this thread. During
// the call everything that the process writes to std::cerr goes to `log`, too.
std::string train_sentencepiece(const std::unordered_map<std::string, std::string>& arguments,
                                const std::function<bool(std::string&)>& next,
                                const std::function<void(std::string_view)>& log,
                                std::string& model);

}  // namespace muster::trainer

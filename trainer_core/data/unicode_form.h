// Unicode's normal forms (UAX #15). Tokenizers such as Qwen's normalize text before they split it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::trainer {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Returns the form with that name, such as "NFC"; nullopt if there is none.
std::optional<UnicodeForm> unicode_form_named(std::string_view name);

// Normalizes texts. Reuses its buffers, so it is called on one thread only.
class UnicodeNormalizer {
 public:
  explicit UnicodeNormalizer(UnicodeForm form) : form_(form) {}

  // Returns `text` in the normal form. If its bytes show that normalization cannot change it, the
  // result is `text` itself; otherwise it is a view that the next call invalidates. Expects
  // well-formed UTF-8; ill-formed pieces stay as they are. Needs memory in proportion to the
  // longest piece of text without an ASCII character.
  std::string_view apply(std::string_view text);

 private:
  // Normalizes a piece and appends it to out_.
  void append(std::string_view piece);

  UnicodeForm form_;
  std::string out_;
  std::vector<int32_t> characters_;
};

}  // namespace muster::trainer

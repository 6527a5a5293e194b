#include "trainer_core/data/byte_bpe_tokenizer.h"

#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/data/utf8.h"
#include "trainer_core/data/word_cache.h"

namespace muster::trainer {
namespace {

class ByteBpeEncoder : public Tokenizer::Encoder {
 public:
  explicit ByteBpeEncoder(const ByteBpeParts& parts) : parts_(parts) {
    for (const UnicodeForm form : parts.forms) normalizers_.emplace_back(form);
    for (const auto& pattern : parts.patterns) matchers_.push_back(pattern->matcher());
  }

  absl::Status append(std::string_view text, std::vector<int32_t>& ids) override {
    return around(parts_.raw, text, ids, [&](std::string_view between) {
      for (UnicodeNormalizer& normalizer : normalizers_) between = normalizer.apply(between);
      return around(parts_.normalized, between, ids,
                    [&](std::string_view piece) { return append_piece(piece, ids); });
    });
  }

 private:
  // Appends the added tokens of `text`, and calls take(piece) for the text between them.
  template <class Take>
  static absl::Status around(const AddedTokens& tokens, std::string_view text,
                             std::vector<int32_t>& ids, const Take& take) {
    for (size_t done = 0; done < text.size();) {
      const AddedTokens::Found found = tokens.find(text, done);
      if (found.begin > done) {
        if (auto status = take(text.substr(done, found.begin - done)); !status.ok()) return status;
      }
      if (found.bytes > 0) ids.push_back(found.id);
      done = found.begin + found.bytes;
    }
    return absl::OkStatus();
  }

  absl::Status append_piece(std::string_view piece, std::vector<int32_t>& ids) {
    if (!parts_.add_prefix_space || piece.front() == ' ') return split(0, piece, ids);
    spaced_.assign(1, ' ').append(piece);
    return split(0, spaced_, ids);
  }

  absl::Status split(size_t stage, std::string_view piece, std::vector<int32_t>& ids) {
    if (stage == matchers_.size()) {
      return cache_.append(piece, ids, [this](std::string_view word, std::vector<int32_t>& out) {
        parts_.merges.append(word, out);
        return absl::OkStatus();
      });
    }
    absl::Status below;
    const absl::Status status = matchers_[stage]->split(piece, [&](std::string_view word) {
      if (below.ok()) below = split(stage + 1, word, ids);
    });
    return status.ok() ? below : status;
  }

  const ByteBpeParts& parts_;
  std::vector<UnicodeNormalizer> normalizers_;
  std::vector<std::unique_ptr<SplitPattern::Matcher>> matchers_;
  WordCache cache_;
  std::string spaced_;
};

class ByteBpeTokenizer : public Tokenizer {
 public:
  explicit ByteBpeTokenizer(ByteBpeParts parts) : parts_(std::move(parts)) {}

  std::string_view type() const override { return parts_.type; }
  int32_t vocab_size() const override { return static_cast<int32_t>(parts_.tokens.size()); }
  int32_t eos_id() const override { return parts_.eos_id; }
  int32_t bos_id() const override { return parts_.bos_id; }
  std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<ByteBpeEncoder>(parts_);
  }

 private:
  std::string encoding() const override {
    if (parts_.encoding.empty()) return "";
    return absl::StrCat(parts_.encoding,
                        parts_.encoding_is_stated ? " (as stated)" : " (known by its SHA-256)");
  }
  bool encoding_is_stated() const override { return parts_.encoding_is_stated; }
  // Bytes of several tokens may form one character; bytes that form none become U+FFFD.
  absl::StatusOr<std::string> text_of(std::span<const int32_t> ids) const override {
    std::string bytes;
    for (const int32_t id : ids) {
      const auto index = static_cast<size_t>(id);
      if (!parts_.is_special[index]) bytes += parts_.tokens[index];
    }
    return repair_utf8(bytes);
  }

  const ByteBpeParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_bpe_tokenizer(ByteBpeParts parts) {
  return std::make_unique<ByteBpeTokenizer>(std::move(parts));
}

}  // namespace muster::trainer

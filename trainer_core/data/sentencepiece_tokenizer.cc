#include "trainer_core/data/sentencepiece_tokenizer.h"

#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/data/sentencepiece_check.h"
#include "trainer_core/data/sentencepiece_model.h"
#include "trainer_core/data/sentencepiece_words.h"
#include "trainer_core/data/word_cache.h"

namespace muster::trainer {
namespace {

absl::Status library_error(const std::string& error) {
  return absl::InternalError(absl::StrCat("SentencePiece: ", error));
}

class SentencePieceEncoder : public Tokenizer::Encoder {
 public:
  SentencePieceEncoder(const SentencePieceModel& model, WordIndependence independence)
      : model_(model), independence_(independence) {}

  absl::Status append(std::string_view text, std::vector<int32_t>& ids) override {
    if (independence_ == WordIndependence::kNone) return encode(text, ids);
    absl::Status status;
    for_each_word(independence_, text, [&](std::string_view word) {
      if (!status.ok()) return;
      status = cache_.append(word, ids, [this](std::string_view unseen, std::vector<int32_t>& out) {
        return encode(unseen, out);
      });
    });
    return status;
  }

 private:
  absl::Status encode(std::string_view text, std::vector<int32_t>& ids) {
    if (const std::string error = model_.encode(text, piece_ids_); !error.empty())
      return library_error(error);
    ids.insert(ids.end(), piece_ids_.begin(), piece_ids_.end());
    return absl::OkStatus();
  }

  const SentencePieceModel& model_;
  const WordIndependence independence_;
  WordCache cache_;
  std::vector<int32_t> piece_ids_;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::unique_ptr<SentencePieceModel> model, WordIndependence independence)
      : model_(std::move(model)), independence_(independence) {}

  std::string_view type() const override { return "sentencepiece"; }
  int32_t vocab_size() const override { return model_->pieces(); }
  int32_t eos_id() const override { return model_->eos_id(); }
  int32_t bos_id() const override { return model_->bos_id(); }
  std::vector<std::pair<std::string, int32_t>> control_tokens() const override {
    std::vector<std::pair<std::string, int32_t>> tokens;
    for (const int32_t id : {model_->bos_id(), model_->eos_id()}) {
      if (id >= 0) tokens.emplace_back(model_->piece(id), id);
    }
    return tokens;
  }
  std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<SentencePieceEncoder>(*model_, independence_);
  }

 private:
  absl::StatusOr<std::string> text_of(std::span<const int32_t> ids) const override {
    std::string text;
    if (const std::string error = model_->decode({ids.begin(), ids.end()}, text); !error.empty())
      return library_error(error);
    return text;
  }

  std::unique_ptr<SentencePieceModel> model_;
  WordIndependence independence_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> load_sentencepiece(std::string_view bytes) {
  if (auto status = check_sentencepiece(bytes); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is not a SentencePiece model: ", status.message()));
  }
  auto model = SentencePieceModel::parse(bytes);
  if (model == nullptr) return absl::InvalidArgumentError("is not a SentencePiece model");
  return std::make_unique<SentencePieceTokenizer>(std::move(model), word_independence(bytes));
}

}  // namespace muster::trainer

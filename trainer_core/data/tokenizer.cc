#include "trainer_core/data/tokenizer.h"

#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "trainer_core/base/fnv.h"
#include "trainer_core/data/text_file.h"

namespace muster::trainer {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& path) {
  auto file = TextFile::open(path);
  if (!file.ok())
    return absl::Status(file.status().code(), absl::StrCat("tokenizer: ", file.status().message()));
  const std::string_view bytes = (*file)->text();
  if (bytes.size() > kTokenizerBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer ", path, " has ", bytes.size(),
                                                   " bytes; at most ", kTokenizerBytesMax,
                                                   " are loaded"));
  }
  auto model = SentencePieceModel::parse(bytes);
  if (model == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer ", path, " is not a SentencePiece model"));
  }
  return absl::WrapUnique(new Tokenizer(std::move(model), fnv1a(bytes)));
}

Tokenizer::Tokenizer(std::unique_ptr<SentencePieceModel> model, uint64_t fingerprint)
    : model_(std::move(model)), fingerprint_(fingerprint) {}

int32_t Tokenizer::vocab_size() const { return model_->pieces(); }
int32_t Tokenizer::eos_id() const { return model_->eos_id(); }

absl::StatusOr<std::vector<int32_t>> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  if (const std::string error = model_->encode(text, ids); !error.empty()) {
    return absl::InternalError(absl::StrCat("SentencePiece: ", error));
  }
  return ids;
}

absl::StatusOr<std::string> Tokenizer::decode(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token id ", id, " in a vocabulary of ", vocab_size()));
    }
  }
  std::string text;
  if (const std::string error = model_->decode({ids.begin(), ids.end()}, text); !error.empty()) {
    return absl::InternalError(absl::StrCat("SentencePiece: ", error));
  }
  return text;
}

}  // namespace muster::trainer

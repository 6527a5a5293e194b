#include "trainer_core/startup/load_tokenizer.h"

#include <absl/strings/str_cat.h>

#include "common/objects/object_cache.h"
#include "common/text/absl_view.h"

namespace muster::trainer {

absl::StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer(const TrainConfig& config) {
  std::string path = config.tokenizer_path;
  if (is_object_url(path)) {
    auto local = fetch_to_cache(ObjectStore(), path);
    if (!local.ok())
      return absl::Status(local.status().code(),
                          absl::StrCat("tokenizer_path: ", local.status().message()));
    path = *std::move(local);
  }
  const TokenizerKind kind = tokenizer_kind(config.tokenizer_type);
  auto tokenizer = Tokenizer::load(path, kind.encoding);
  if (!tokenizer.ok()) return tokenizer;
  if (!kind.type.empty() && (*tokenizer)->type() != kind.type) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer ", config.tokenizer_path, " is not of tokenizer_type=", config.tokenizer_type,
        "; set tokenizer_type=", av((*tokenizer)->type())));
  }
  // The model's vocabulary may be larger: padded to a multiple of 128 for faster GEMMs, or to a
  // multiple of the ranks that share it.
  if ((*tokenizer)->vocab_size() > config.model.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer ", config.tokenizer_path, " has a vocabulary of ",
                     (*tokenizer)->vocab_size(), ", but vocab_size=", config.model.vocab_size,
                     "; it must be at least ", (*tokenizer)->vocab_size()));
  }
  return tokenizer;
}

}  // namespace muster::trainer

#include "trainer_core/data/tokenizer.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/fnv.h"
#include "trainer_core/data/hugging_face_tokenizer.h"
#include "trainer_core/data/sentencepiece_tokenizer.h"
#include "trainer_core/data/text_file.h"
#include "trainer_core/data/tiktoken.h"
#include "trainer_core/data/utf8.h"

namespace muster::trainer {

namespace {

namespace fs = std::filesystem;

// Resolves a folder to the tokenizer in it, like Hugging Face's from_pretrained().
std::string file_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const std::string file = absl::StrCat(path, "/", name);
    if (fs::exists(file, error)) return file;
  }
  return path;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> parse(std::string_view bytes, const fs::path& path) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '{')
    return load_hugging_face(bytes, path.parent_path().string());
  if (looks_like_tiktoken(bytes)) return load_tiktoken(bytes, path.filename().string());
  auto tokenizer = load_sentencepiece(bytes);
  if (tokenizer.ok()) return tokenizer;
  return absl::InvalidArgumentError(
      "is not a SentencePiece model, and neither a tokenizer.json nor a tiktoken file");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& path) {
  const std::string name = file_of(path);
  auto file = TextFile::open(name);
  if (!file.ok())
    return absl::Status(file.status().code(), absl::StrCat("tokenizer: ", file.status().message()));
  const std::string_view bytes = (*file)->text();
  if (bytes.size() > kTokenizerBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer ", name, " has ", bytes.size(),
                                                   " bytes; at most ", kTokenizerBytesMax,
                                                   " are loaded"));
  }
  auto tokenizer = parse(bytes, name);
  if (!tokenizer.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer ", name, " ", tokenizer.status().message()));
  }
  (*tokenizer)->fingerprint_ = fnv1a(bytes);
  return tokenizer;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  if (auto status = encoder()->append(repair_utf8(text), ids); !status.ok()) return status;
  return ids;
}

absl::StatusOr<std::string> Tokenizer::decode(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token id ", id, " in a vocabulary of ", vocab_size()));
    }
  }
  return text_of(ids);
}

}  // namespace muster::trainer

#include "trainer_core/data/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/random/fnv.h"
#include "common/text/absl_view.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/data/hugging_face_tokenizer.h"
#include "trainer_core/data/sentencepiece_tokenizer.h"
#include "trainer_core/data/text_file.h"
#include "trainer_core/data/tiktoken.h"
#include "trainer_core/data/utf8.h"

namespace muster::trainer {

namespace {

namespace fs = std::filesystem;

// Returns whether the file has tiktoken's ranks. Programs store them under any name: o200k_base,
// tokenizer.model, or a hash in a cache.
bool is_tiktoken(const fs::path& path) {
  std::error_code error;
  const std::string ending = path.extension().string();
  if (ending == ".tiktoken") return true;
  if (ending == ".model" || ending == ".json" || ending == ".safetensors") return false;
  return fs::is_regular_file(path, error) && looks_like_tiktoken(first_bytes(path.string()));
}

// Returns a note if a folder has further files of ranks beside the used one; "" if there are none.
std::string unused_ranks(const std::vector<std::string>& files, const std::string& used) {
  if (!is_tiktoken(used)) return "";
  std::string names;
  for (const std::string& file : files) {
    if (file != used && is_tiktoken(file)) absl::StrAppend(&names, names.empty() ? "" : ", ", file);
  }
  if (names.empty()) return "";
  return absl::StrCat(used, " is used; not used are the other tiktoken files: ", names);
}

// The tokenizer files of a folder in the order in which they are tried.
std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "original/tokenizer.model",
                           "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model"}) {
    // A dangling link counts: its error states what is missing.
    const fs::path path = fs::path(folder) / name;
    if (fs::exists(fs::symlink_status(path, error))) files.push_back(path.string());
  }
  std::vector<std::string> others;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (is_tiktoken(entry->path())) others.push_back(entry->path().string());
  }
  std::sort(others.begin(), others.end());
  files.insert(files.end(), others.begin(), others.end());
  return files;
}

// Names files of a folder without a tokenizer that have the name of one.
std::string other_tokenizer_files(const std::string& folder) {
  std::error_code error;
  const auto has = [&](const char* name) { return fs::exists(fs::path(folder) / name, error); };
  if (has("vocab.json") && has("merges.txt")) {
    return "; vocab.json and merges.txt alone are not read: AutoTokenizer.from_pretrained(DIR)"
           ".save_pretrained(NEW) makes a tokenizer.json of them";
  }
  if (has("tekken.json")) return "; tekken.json is not read: take the tokenizer.json of the model";
  if (has("vocab.txt")) return "; vocab.txt is of WordPiece, which is not read";
  return "";
}

absl::StatusOr<std::unique_ptr<Tokenizer>> parse(std::string_view bytes, const fs::path& path,
                                                 const std::string& encoding) {
  if (looks_like_tiktoken(bytes)) return load_tiktoken(bytes, encoding);
  if (!encoding.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is not a tiktoken file, and only such files have an encoding (", encoding, ")"));
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const size_t mark = bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  const size_t first = bytes.find_first_not_of(" \t\r\n", mark);
  if (first != std::string_view::npos && bytes[first] == '{')
    return load_hugging_face(bytes, path.parent_path().string());
  auto tokenizer = load_sentencepiece(bytes);
  if (tokenizer.ok()) return tokenizer;
  const std::string problem = foreign_file_problem(bytes.substr(0, kFileKindBytes), bytes.size());
  if (!problem.empty())
    return absl::InvalidArgumentError(absl::StrCat("cannot be used: ", problem));
  return absl::InvalidArgumentError(
      "is not a SentencePiece model, and neither a tokenizer.json nor a tiktoken file");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::load_file(const std::string& name,
                                                                const std::string& encoding) {
  auto file = TextFile::open(name);
  if (!file.ok())
    return absl::Status(file.status().code(), absl::StrCat("tokenizer: ", file.status().message()));
  const std::string_view bytes = (*file)->text();
  if (bytes.size() > kTokenizerBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer ", name, " has ", bytes.size(),
                                                   " bytes; at most ", kTokenizerBytesMax,
                                                   " are loaded"));
  }
  auto tokenizer = parse(bytes, name, encoding);
  if (!tokenizer.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer ", name, " ", tokenizer.status().message()));
  }
  (*tokenizer)->fingerprint_ = fnv1a(bytes);
  if ((*tokenizer)->encoding_is_stated()) (*tokenizer)->fingerprint_ ^= fnv1a(encoding);
  (*tokenizer)->file_ = name;
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& path,
                                                           const std::string& encoding) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    auto tokenizer = load_file(path, encoding);
    const fs::path model = fs::path(path).parent_path() / "tokenizer.model";
    if (tokenizer.ok() || fs::path(path).filename() != "tokenizer.json" ||
        !load_file(model.string(), encoding).ok())
      return tokenizer;
    return absl::InvalidArgumentError(
        absl::StrCat(tokenizer.status().message(), "; ", model.string(),
                     " beside it can be used: name it, or the folder"));
  }
  absl::Status first;
  const std::vector<std::string> files = files_of(path);
  for (const std::string& file : files) {
    auto tokenizer = load_file(file, encoding);
    if (!tokenizer.ok()) {
      first = first.ok() ? tokenizer.status()
                         : absl::Status(first.code(), absl::StrCat(first.message(), "; ",
                                                                   tokenizer.status().message()));
      continue;
    }
    if (!first.ok()) {
      (*tokenizer)
          ->notes_.push_back(absl::StrCat(first.message(), "; ", file, " is used in its place"));
    }
    if (std::string note = unused_ranks(files, file); !note.empty())
      (*tokenizer)->notes_.push_back(std::move(note));
    return tokenizer;
  }
  if (!first.ok()) return first;
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer: folder ", path,
                   " has neither a tokenizer.json nor a tokenizer.model nor a .tiktoken file",
                   other_tokenizer_files(path)));
}

std::string Tokenizer::description() const {
  const std::string name = encoding();
  return absl::StrCat(av(type()), name.empty() ? "" : " ", name);
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

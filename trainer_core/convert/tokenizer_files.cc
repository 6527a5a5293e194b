#include "trainer_core/convert/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/base/mapped_file.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/data/sentencepiece_check.h"
#include "trainer_core/data/sentencepiece_model.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kTokenizerConfigFile[] = "tokenizer_config.json";
constexpr char kGenerationConfigFile[] = "generation_config.json";
constexpr size_t kGenerationConfigBytesMax = 1 << 20;

// The files that transformers saves together with the weights of a language model.
constexpr const char* kKnownFiles[] = {kSentencePieceFile,   kHuggingFaceTokenizerFile,
                                       kTokenizerConfigFile, "special_tokens_map.json",
                                       "added_tokens.json",  "vocab.json",
                                       "merges.txt",         "chat_template.jinja",
                                       kGenerationConfigFile};

// Returns null if the file is not a SentencePiece model.
absl::StatusOr<std::unique_ptr<SentencePieceModel>> load(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file.ok())
    return absl::Status(file.status().code(), absl::StrCat("tokenizer: ", file.status().message()));
  const std::span<const char> bytes = (*file)->bytes();
  const std::string_view model(bytes.data(), bytes.size());
  if (model.size() > kTokenizerBytesMax || !check_sentencepiece(model).ok()) return nullptr;
  return SentencePieceModel::parse(model);
}

std::string piece_or_empty(const SentencePieceModel& model, int32_t id) {
  return id < 0 ? "" : model.piece(id);
}

// Writes a tokenizer_config.json for transformers' LlamaTokenizer, which is SentencePiece with an
// optional token before each text: the one of text_start.h.
void describe(const SentencePieceModel& model, const ParameterDescription& source,
              TokenizerFiles& files) {
  const bool from_shards = source.format == ParameterFormat::kMuster &&
                           source.config->dataset_type == DatasetType::kShards;
  const int32_t start = from_shards ? source.config->sample_begin_id : model.bos_id();
  const bool has_start = start >= 0 && start < model.pieces();
  const int32_t bos = has_start ? start : model.eos_id();
  const auto set_id = [&](const char* field, int32_t id) {
    files.token_ids[field] = id < 0 ? json(nullptr) : json(id);
  };
  set_id("bos_token_id", bos);
  set_id("eos_token_id", model.eos_id());
  json& config = files.tokenizer_config;
  config = {{"tokenizer_class", "LlamaTokenizer"},
            {"add_bos_token", has_start},
            {"add_eos_token", false},
            {"clean_up_tokenization_spaces", false},
            {"legacy", true}};
  const std::pair<const char*, std::string> tokens[] = {
      {"bos_token", piece_or_empty(model, bos)},
      {"eos_token", piece_or_empty(model, model.eos_id())},
      {"unk_token", piece_or_empty(model, model.unk_id())}};
  for (const auto& [name, text] : tokens) config[name] = text.empty() ? json(nullptr) : json(text);
  if (source.max_position > 0) config["model_max_length"] = source.max_position;
}

absl::Status take_sentence_piece(const std::string& path, const ParameterDescription& source,
                                 TokenizerFiles& files) {
  const auto model = load(path);
  if (!model.ok()) return model.status();
  if (*model == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer ", path, " is not a SentencePiece model"));
  }
  if ((*model)->pieces() > source.model.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer ", path, " has a vocabulary of ", (*model)->pieces(), ", and the model one of ",
        source.model.vocab_size, ": it is another model's"));
  }
  files.sentence_piece = path;
  describe(**model, source, files);
  return absl::OkStatus();
}

void find_known_files(const std::string& folder, TokenizerFiles& files) {
  std::error_code error;
  files.folder = folder;
  for (const char* name : kKnownFiles) {
    if (fs::is_regular_file(folder + "/" + name, error)) files.names.emplace_back(name);
  }
}

bool has(const TokenizerFiles& files, const std::string& name) {
  return std::find(files.names.begin(), files.names.end(), name) != files.names.end();
}

// Refuses known files whose data is elsewhere: pointers of Git LFS and dangling symbolic links.
absl::Status check_files(const TokenizerFiles& files) {
  if (files.folder.empty()) return absl::OkStatus();
  for (const char* name : kKnownFiles) {
    const std::string path = absl::StrCat(files.folder, "/", name);
    if (const std::string problem = dangling_problem(path); !problem.empty())
      return absl::NotFoundError(absl::StrCat("tokenizer: ", path, ": ", problem));
    if (!has(files, name)) continue;
    std::error_code error;
    const uintmax_t bytes = fs::file_size(path, error);
    const auto status = check_no_pointer(path, first_bytes(path), error ? 0 : bytes);
    if (!status.ok())
      return absl::Status(status.code(), absl::StrCat("tokenizer: ", status.message()));
  }
  return absl::OkStatus();
}

// Selects a file of Hugging Face's format, and the files of its folder that belong to it.
bool take_hugging_face(const std::string& path, TokenizerFiles& files) {
  const fs::path file(path);
  if (file.filename() != kHuggingFaceTokenizerFile) return false;
  find_known_files(file.parent_path().string(), files);
  std::erase(files.names, kGenerationConfigFile);  // may belong to another model
  return has(files, kHuggingFaceTokenizerFile);
}

// Returns the file that a folder of a tokenizer stands for; any other path as it is.
absl::StatusOr<std::string> file_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  const auto tokenizer = Tokenizer::load(path);
  if (!tokenizer.ok()) return tokenizer.status();
  return (*tokenizer)->file();
}

// Reads the token ids that the files contain.
void read_generation_config(TokenizerFiles& files) {
  if (!has(files, kGenerationConfigFile)) return;
  const auto config =
      read_json_file(files.folder + "/" + kGenerationConfigFile, kGenerationConfigBytesMax);
  if (!config.ok() || !config->is_object()) return;  // it is copied unchanged
  files.token_ids.update(token_ids_of(*config));
}

// Describes a SentencePiece model without transformers' files in its folder.
void describe_lone_model(const ParameterDescription& source, TokenizerFiles& files) {
  if (!has(files, kSentencePieceFile) || has(files, kTokenizerConfigFile) ||
      has(files, kHuggingFaceTokenizerFile))
    return;
  const absl::Status status =
      take_sentence_piece(files.folder + "/" + kSentencePieceFile, source, files);
  if (!status.ok()) {
    files.notes.push_back(absl::StrCat(status.message(),
                                       "; it is copied as it is, and transformers may need another "
                                       "file in its place"));
  }
}

}  // namespace

absl::StatusOr<TokenizerFiles> find_tokenizer_files(const ParameterDescription& source,
                                                    const std::string& given) {
  TokenizerFiles files;
  files.token_ids = source.token_ids;
  if (!given.empty()) {
    const auto file = file_of(given);
    if (!file.ok()) return file.status();
    if (!take_hugging_face(*file, files)) {
      if (auto status = take_sentence_piece(*file, source, files); !status.ok()) return status;
    }
    if (auto status = check_files(files); !status.ok()) return status;
    return files;
  }
  const bool ours = source.format == ParameterFormat::kMuster;
  const std::string& folder =
      source.tokenizer_folder.empty() ? source.folder : source.tokenizer_folder;
  find_known_files(ours ? run_folder_of(folder) : folder, files);
  if (auto status = check_files(files); !status.ok()) return status;
  read_generation_config(files);
  describe_lone_model(source, files);
  if (!files.names.empty() || !ours) return files;
  if (source.config->tokenizer_path.empty()) return files;
  const auto path = file_of(source.config->tokenizer_path);
  if (path.ok() && take_hugging_face(*path, files)) {
    if (auto status = check_files(files); !status.ok()) return status;
    return files;
  }
  const absl::Status status = path.ok() ? take_sentence_piece(*path, source, files) : path.status();
  if (!status.ok()) {
    files.notes.push_back(
        absl::StrCat(status.message(), "; no tokenizer goes along: give one with --tokenizer"));
  }
  return files;
}

absl::Status write_tokenizer_files(const TokenizerFiles& files, const std::string& folder) {
  const auto copy = [&](const std::string& from, const std::string& name) -> absl::Status {
    std::error_code error;
    const std::string to = absl::StrCat(folder, "/", name);
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
    if (error) return errno_status(error.value(), absl::StrCat("cannot copy ", from, " to ", to));
    return sync_path(to);
  };
  for (const std::string& name : files.names) {
    if (auto status = copy(files.folder + "/" + name, name); !status.ok()) return status;
  }
  if (!files.sentence_piece.empty()) {
    if (auto status = copy(files.sentence_piece, kSentencePieceFile); !status.ok()) return status;
  }
  const auto write = [&](const char* name, const json& content) {
    return write_file_atomically(absl::StrCat(folder, "/", name),
                                 content.dump(2, ' ', false, json::error_handler_t::replace) + "\n",
                                 {.durability = Durability::kPowerLoss});
  };
  if (!files.tokenizer_config.is_null()) {
    if (auto status = write(kTokenizerConfigFile, files.tokenizer_config); !status.ok())
      return status;
  }
  if (files.token_ids.empty() || has(files, kGenerationConfigFile)) return absl::OkStatus();
  return write(kGenerationConfigFile, files.token_ids);
}

}  // namespace muster::trainer

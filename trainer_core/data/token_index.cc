#include "trainer_core/data/token_index.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "common/file_write.h"
#include "trainer_core/data/shard.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "muster-tokens";
constexpr int kFormatVersion = 1;
// kShardsMax lines of a hundred bytes.
constexpr size_t kIndexBytesMax = 16 << 20;

absl::StatusOr<std::string> read_bounded(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat(
        "no data set: cannot open ", path,
        "; make one with `muster tokenize --text INPUT.txt --tokenizer MODEL.model --out FOLDER`"));
  }
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes > kIndexBytesMax) {
    return absl::DataLossError(absl::StrCat(path, " is larger than ", kIndexBytesMax, " bytes"));
  }
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

bool plain_file_name(const std::string& name) {
  return !name.empty() && name.size() < 256 && name.find('/') == std::string::npos && name != "." &&
         name != "..";
}

absl::StatusOr<TokenIndex> parse(const json& j) {
  if (j.at("format").get<std::string>() != kFormat)
    return absl::DataLossError("format is not muster-tokens");
  if (j.at("version").get<int>() != kFormatVersion) {
    return absl::DataLossError(absl::StrCat("version ", j.at("version").get<int>(),
                                            "; this program reads ", kFormatVersion));
  }
  TokenIndex index;
  index.vocab_size = j.at("vocab_size").get<uint32_t>();
  index.tokenizer_fingerprint =
      std::stoull(j.at("tokenizer_fingerprint").get<std::string>(), nullptr, 16);
  index.tokens = j.at("tokens").get<uint64_t>();
  index.documents = j.at("documents").get<uint64_t>();
  index.bytes = j.at("bytes").get<uint64_t>();
  index.unigram_entropy_nats = j.at("unigram_entropy_nats").get<double>();
  const json& shards = j.at("shards");
  if (!shards.is_array() || shards.empty() || shards.size() > kShardsMax) {
    return absl::DataLossError(
        absl::StrCat("shards must be a list of 1 to ", kShardsMax, " entries"));
  }
  for (const json& entry : shards) {
    TokenIndex::Shard shard{entry.at("file").get<std::string>(), entry.at("tokens").get<uint64_t>(),
                            entry.at("documents").get<uint64_t>()};
    if (!plain_file_name(shard.file)) {
      return absl::DataLossError("shards.file must be a plain file name inside the folder");
    }
    index.shards.push_back(std::move(shard));
  }
  return index;
}

}  // namespace

std::string shard_file_name(size_t index) { return absl::StrFormat("shard-%05d.mtok", index); }

absl::Status write_token_index(const std::string& folder, const TokenIndex& index) {
  json shards = json::array();
  for (const TokenIndex::Shard& shard : index.shards) {
    shards.push_back(
        {{"file", shard.file}, {"tokens", shard.tokens}, {"documents", shard.documents}});
  }
  const json j = {{"format", kFormat},
                  {"version", kFormatVersion},
                  {"vocab_size", index.vocab_size},
                  {"token_bytes", token_bytes_for(index.vocab_size)},
                  {"tokenizer_fingerprint", absl::StrFormat("%016x", index.tokenizer_fingerprint)},
                  {"tokens", index.tokens},
                  {"documents", index.documents},
                  {"bytes", index.bytes},
                  {"unigram_entropy_nats", index.unigram_entropy_nats},
                  {"shards", std::move(shards)}};
  return write_file_atomically(absl::StrCat(folder, "/", kTokenIndexFile), j.dump(2) + "\n",
                               {.durability = Durability::kPowerLoss});
}

absl::StatusOr<TokenIndex> read_token_index(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kTokenIndexFile);
  auto text = read_bounded(path);
  if (!text.ok()) return text.status();
  try {
    auto index = parse(json::parse(*text));
    if (!index.ok()) return absl::DataLossError(absl::StrCat(path, ": ", index.status().message()));
    return index;
  } catch (const std::exception& e) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: ", e.what()));
  }
}

}  // namespace muster::trainer

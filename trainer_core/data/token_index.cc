#include "trainer_core/data/token_index.h"

#include <algorithm>
#include <limits>
#include <regex>
#include <stdexcept>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "common/files/file_write.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/data/shard.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "muster-tokens";
constexpr int kFormatVersion = 1;
// The maximum size of the index: kShardsMax entries of a hundred bytes.
constexpr size_t kIndexBytesMax = 16 << 20;
// The maximum number of tokens of a shard. No disk has room for more, and the product with
// kShardsMax fits in 64 bits.
constexpr uint64_t kTokensMax = uint64_t{1} << 46;

bool plain_file_name(const std::string& name) {
  return !name.empty() && name.size() < 256 && name.find('/') == std::string::npos && name != "." &&
         name != "..";
}

// Returns a number. Throws if it is invalid; read_token_index() catches the exception together with
// those of the JSON library.
uint64_t count_at(const json& j, const char* key, uint64_t max) {
  const json& value = j.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > max)
    throw std::out_of_range(absl::StrCat(key, " must be an integer from 0 to ", max));
  return value.get<uint64_t>();
}

absl::StatusOr<TokenIndex> parse(const json& j) {
  if (j.at("format").get<std::string>() != kFormat)
    return absl::DataLossError("format is not muster-tokens");
  if (j.at("version") != kFormatVersion) {
    return absl::DataLossError(
        absl::StrCat("version ", j.at("version").dump(), "; this program reads ", kFormatVersion));
  }
  TokenIndex index;
  index.vocab_size = static_cast<uint32_t>(count_at(j, "vocab_size", kVocabSizeMax));
  index.tokenizer_fingerprint =
      std::stoull(j.at("tokenizer_fingerprint").get<std::string>(), nullptr, 16);
  index.tokens = count_at(j, "tokens", kTokensMax);
  index.documents = count_at(j, "documents", kTokensMax);
  index.bytes = count_at(j, "bytes", std::numeric_limits<uint64_t>::max());
  index.unigram_entropy_nats = j.at("unigram_entropy_nats").get<double>();
  index.has_pairs = j.value("has_pairs", false);
  if (j.contains("begin_id"))
    index.begin_id =
        static_cast<int32_t>(count_at(j, "begin_id", std::max(index.vocab_size, 1U) - 1));
  const json& shards = j.at("shards");
  if (!shards.is_array() || shards.empty() || shards.size() > kShardsMax) {
    return absl::DataLossError(
        absl::StrCat("shards must be a list of 1 to ", kShardsMax, " entries"));
  }
  uint64_t tokens = 0;
  for (const json& entry : shards) {
    TokenIndex::Shard shard{entry.at("file").get<std::string>(),
                            count_at(entry, "tokens", kTokensMax),
                            count_at(entry, "documents", kTokensMax)};
    if (!plain_file_name(shard.file)) {
      return absl::DataLossError("shards.file must be a plain file name inside the folder");
    }
    tokens += shard.tokens;
    index.shards.push_back(std::move(shard));
  }
  if (tokens != index.tokens) {
    return absl::DataLossError(
        absl::StrCat("tokens is ", index.tokens, ", but its shards have ", tokens, " together"));
  }
  return index;
}

}  // namespace

std::string shard_file_name(size_t index, uint64_t generation) {
  return generation == 0 ? absl::StrFormat("shard-%05d.mtok", index)
                         : absl::StrFormat("shard-%05d.%d.mtok", index, generation);
}

std::optional<uint64_t> shard_generation(const std::string& file_name) {
  static const std::regex kName(R"(shard-\d{5,6}(?:\.([1-9]\d{0,17}))?\.mtok)");
  std::smatch match;
  if (!std::regex_match(file_name, match, kName)) return std::nullopt;
  return match[1].matched ? std::stoull(match[1].str()) : 0;
}

absl::Status write_token_index(const std::string& folder, const TokenIndex& index) {
  json shards = json::array();
  for (const TokenIndex::Shard& shard : index.shards) {
    shards.push_back(
        {{"file", shard.file}, {"tokens", shard.tokens}, {"documents", shard.documents}});
  }
  json j = {{"format", kFormat},
            {"version", kFormatVersion},
            {"vocab_size", index.vocab_size},
            {"token_bytes", token_bytes_for(index.vocab_size)},
            {"tokenizer_fingerprint", absl::StrFormat("%016x", index.tokenizer_fingerprint)},
            {"tokens", index.tokens},
            {"documents", index.documents},
            {"bytes", index.bytes},
            {"unigram_entropy_nats", index.unigram_entropy_nats},
            {"shards", std::move(shards)}};
  if (index.has_pairs) j["has_pairs"] = true;
  if (index.begin_id >= 0) j["begin_id"] = index.begin_id;
  return write_file_atomically(absl::StrCat(folder, "/", kTokenIndexFile), j.dump(2) + "\n",
                               {.durability = Durability::kPowerLoss});
}

absl::StatusOr<TokenIndex> read_token_index(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kTokenIndexFile);
  const auto json = read_json_file(path, kIndexBytesMax);
  if (absl::IsNotFound(json.status()) || absl::IsFailedPrecondition(json.status())) {
    return absl::NotFoundError(absl::StrCat(
        "no data set: ", json.status().message(),
        "; make one with `muster tokenize --text INPUT.txt --tokenizer MODEL.model --out FOLDER`"));
  }
  if (absl::IsInvalidArgument(json.status()))
    return absl::DataLossError(absl::StrCat(json.status().message()));
  if (!json.ok()) return json.status();
  try {
    auto index = parse(*json);
    if (!index.ok()) return absl::DataLossError(absl::StrCat(path, ": ", index.status().message()));
    return index;
  } catch (const std::exception& e) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: ", e.what()));
  }
}

}  // namespace muster::trainer

#include "trainer_core/data/token_dataset.h"

#include <algorithm>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

absl::Status check_shard(const ShardReader& shard, const TokenIndex& index,
                         const TokenIndex::Shard& entry) {
  const ShardHeader& header = shard.header();
  const auto differs = [&](const char* what, uint64_t holds, uint64_t indexed) {
    return absl::DataLossError(absl::StrCat(entry.file, " holds ", holds, " ", what, ", but ",
                                            kTokenIndexFile, " states ", indexed,
                                            "; tokenize again"));
  };
  if (header.token_count != entry.tokens)
    return differs("tokens", header.token_count, entry.tokens);
  if (header.document_count != entry.documents)
    return differs("documents", header.document_count, entry.documents);
  if (header.vocab_size != index.vocab_size ||
      header.tokenizer_fingerprint != index.tokenizer_fingerprint) {
    return absl::DataLossError(absl::StrCat(entry.file, " was made with another tokenizer than ",
                                            kTokenIndexFile, " states; tokenize again"));
  }
  return absl::OkStatus();
}

// Returns the last shard that begins at or before `number`. `firsts` is ascending and ends with the
// total. Empty shards are never returned.
size_t shard_of(const std::vector<uint64_t>& firsts, uint64_t number) {
  return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), number) -
                             firsts.begin()) -
         1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenDataset>> TokenDataset::open(const std::string& folder,
                                                                 int32_t vocab_size) {
  auto index = read_token_index(folder);
  if (!index.ok()) return index.status();
  if (index->vocab_size > static_cast<uint32_t>(vocab_size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data set in ", folder, " was made with a vocabulary of ", index->vocab_size,
        ", but vocab_size=", vocab_size, "; set vocab_size=", index->vocab_size,
        " or a larger one, or tokenise with another tokenizer"));
  }
  auto dataset = absl::WrapUnique(new TokenDataset);
  uint64_t token = 0, document = 0;
  for (const TokenIndex::Shard& entry : index->shards) {
    auto shard = ShardReader::open(absl::StrCat(folder, "/", entry.file));
    if (!shard.ok()) return shard.status();
    if (auto status = check_shard(**shard, *index, entry); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(folder, "/", status.message()));
    }
    dataset->first_tokens_.push_back(token);
    dataset->first_documents_.push_back(document);
    token += entry.tokens;
    document += entry.documents;
    dataset->shards_.push_back(std::move(*shard));
  }
  dataset->first_tokens_.push_back(token);
  dataset->first_documents_.push_back(document);
  dataset->folder_ = folder;
  dataset->index_ = std::move(*index);
  return dataset;
}

// Calls read(shard, position in the shard, part) for the part of `out` in each shard.
template <class T, class Read>
absl::Status TokenDataset::read_parts(uint64_t position, std::span<T> out, const Read& read) const {
  size_t shard = shard_of(first_tokens_, position);
  while (!out.empty()) {
    const uint64_t inside = position - first_tokens_[shard];
    const uint64_t count = std::min<uint64_t>(out.size(), first_tokens_[shard + 1] - position);
    if (auto status = read(*shards_[shard], inside, out.first(count)); !status.ok()) return status;
    if (auto status = shards_[shard]->check_unchanged(); !status.ok()) return status;
    out = out.subspan(count);
    position += count;
    ++shard;
  }
  return absl::OkStatus();
}

absl::Status TokenDataset::read(uint64_t position, std::span<int32_t> out) const {
  return read_parts(position, out, [](const ShardReader& shard, uint64_t at, auto part) {
    return shard.read(at, part);
  });
}

absl::Status TokenDataset::read_weights(uint64_t position, std::span<float> out) const {
  return read_parts(position, out, [](const ShardReader& shard, uint64_t at, auto part) {
    return shard.read_weights(at, part);
  });
}

bool TokenDataset::has_weights() const {
  return std::ranges::any_of(shards_,
                             [](const auto& shard) { return shard->header().has_weights; });
}

absl::StatusOr<uint64_t> TokenDataset::document_at(uint64_t position) const {
  const size_t shard = shard_of(first_tokens_, position);
  const uint64_t inside = position - first_tokens_[shard];
  // Finds the first document whose end is after the token.
  uint64_t low = 0, high = first_documents_[shard + 1] - first_documents_[shard];
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    uint64_t end = 0;
    if (auto status = shards_[shard]->document_ends(middle, {&end, 1}); !status.ok()) return status;
    if (end > inside) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low < first_documents_[shard + 1] - first_documents_[shard])
    return first_documents_[shard] + low;
  return absl::DataLossError(absl::StrCat(folder_, "/", index_.shards[shard].file,
                                          ": its documents end before token ", inside,
                                          "; tokenize again"));
}

absl::StatusOr<TokenDataset::TokenRange> TokenDataset::document(uint64_t number) const {
  const size_t shard = shard_of(first_documents_, number);
  const uint64_t inside = number - first_documents_[shard];
  uint64_t ends[2] = {0, 0};
  const uint64_t before = inside > 0 ? 1 : 0;
  const auto wanted = std::span(ends).subspan(1 - before);
  if (auto status = shards_[shard]->document_ends(inside - before, wanted); !status.ok())
    return status;
  return TokenRange{first_tokens_[shard] + ends[0], first_tokens_[shard] + ends[1]};
}

std::string TokenDataset::checksums() const {
  std::string text;
  for (const auto& shard : shards_) {
    const ShardHeader& header = shard->header();
    absl::StrAppend(&text, header.token_count, ",", header.document_count, ",", header.tokens_crc32,
                    ",", header.documents_crc32, ";");
  }
  return text;
}

absl::Status TokenDataset::verify_shards() const {
  for (const auto& shard : shards_) {
    if (auto status = shard->verify_payload(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer

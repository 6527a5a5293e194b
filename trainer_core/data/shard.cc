#include "trainer_core/data/shard.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <absl/strings/str_cat.h>

#include "trainer_core/data/crc32.h"

namespace muster::trainer {
namespace {

static_assert(std::endian::native == std::endian::little,
              "shards are copied as they are in memory");

constexpr size_t kHeaderCrcOffset = 60;
constexpr size_t kEndBytes = sizeof(uint64_t);
constexpr size_t kSumBytes = sizeof(uint64_t);

template <class T>
void put(char* header, size_t offset, T value) {
  std::memcpy(header + offset, &value, sizeof(value));
}

template <class T>
T get(std::span<const char> header, size_t offset) {
  T value;
  std::memcpy(&value, header.data() + offset, sizeof(value));
  return value;
}

absl::Status wrong(size_t offset, const std::string& field, uint64_t value,
                   const std::string& right) {
  return absl::DataLossError(
      absl::StrCat("at offset ", offset, ": ", field, " is ", value, "; ", right));
}

// Rounds up the bytes of the tokens, so that the list of document ends is aligned to 8 bytes.
uint64_t padded(uint64_t bytes) { return (bytes + kEndBytes - 1) / kEndBytes * kEndBytes; }

absl::Status check_fields(const ShardHeader& header, uint64_t file_bytes) {
  if (header.vocab_size == 0 || header.vocab_size > kVocabSizeMax) {
    return wrong(20, "vocab_size", header.vocab_size,
                 absl::StrCat("it must be 1 to ", kVocabSizeMax));
  }
  if (header.token_bytes != token_bytes_for(header.vocab_size)) {
    return wrong(16, "token_bytes", header.token_bytes,
                 absl::StrCat("a vocabulary of ", header.vocab_size, " takes ",
                              token_bytes_for(header.vocab_size)));
  }
  // The first check divides instead of multiplying: a hostile count must not wrap around.
  const uint64_t payload = file_bytes - kShardHeaderBytes;
  if (payload / header.token_bytes < header.token_count ||
      padded(header.token_count * header.token_bytes) > payload) {
    return absl::DataLossError(absl::StrCat("truncated: the header promises ", header.token_count,
                                            " tokens, but the file ends at offset ", file_bytes,
                                            ", after ", payload / header.token_bytes, " of them"));
  }
  const uint64_t table = payload - padded(header.token_count * header.token_bytes);
  if (table / kEndBytes < header.document_count) {
    return absl::DataLossError(absl::StrCat("truncated: the header promises ",
                                            header.document_count,
                                            " documents, but the file ends at offset ", file_bytes,
                                            ", after the ends of ", table / kEndBytes));
  }
  const uint64_t after = table - header.document_count * kEndBytes;
  if (header.has_weights && after / sizeof(float) < header.token_count) {
    return absl::DataLossError(absl::StrCat("truncated: the header promises ", header.token_count,
                                            " weights, but the file ends at offset ", file_bytes,
                                            ", after ", after / sizeof(float), " of them"));
  }
  const uint64_t rest = after - (header.payload_end() - header.weights_offset());
  const uint64_t sums = header.blocks() * kSumBytes;
  if (rest < sums) {
    return absl::DataLossError(absl::StrCat("truncated: the header promises ", header.blocks(),
                                            " checksums, but the file ends at offset ", file_bytes,
                                            ", after ", rest / kSumBytes, " of them"));
  }
  if (rest == sums) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "at offset ", file_bytes - (rest - sums), ": ", rest - sums, " bytes follow the last ",
      sums > 0 ? "checksum" : "document's end", "; the file should end there"));
}

}  // namespace

uint64_t ShardHeader::documents_offset() const {
  return kShardHeaderBytes + padded(token_count * token_bytes);
}

uint32_t token_bytes_for(uint32_t vocab_size) { return vocab_size <= (1U << 16) ? 2 : 4; }

std::array<char, kShardHeaderBytes> encode_shard_header(const ShardHeader& header) {
  std::array<char, kShardHeaderBytes> bytes{};
  std::memcpy(bytes.data(), kShardMagic.data(), kShardMagic.size());
  put(bytes.data(), 8,
      header.has_weights       ? kShardVersionWithWeights
      : header.block_bytes > 0 ? kShardVersion
                               : kShardVersionWithoutBlocks);
  put(bytes.data(), 12, static_cast<uint32_t>(kShardHeaderBytes));
  put(bytes.data(), 16, header.token_bytes);
  put(bytes.data(), 20, header.vocab_size);
  put(bytes.data(), 24, header.tokenizer_fingerprint);
  put(bytes.data(), 32, header.token_count);
  put(bytes.data(), 40, header.document_count);
  put(bytes.data(), 48, header.tokens_crc32);
  put(bytes.data(), 52, header.documents_crc32);
  put(bytes.data(), 56, header.block_bytes);
  put(bytes.data(), kHeaderCrcOffset, crc32_of(bytes.data(), kHeaderCrcOffset));
  return bytes;
}

absl::StatusOr<ShardHeader> decode_shard_header(std::span<const char> bytes, uint64_t file_bytes) {
  if (bytes.size() < kShardHeaderBytes || file_bytes < kShardHeaderBytes) {
    return absl::DataLossError(absl::StrCat("truncated: the file ends at offset ", file_bytes,
                                            ", inside the header of ", kShardHeaderBytes,
                                            " bytes"));
  }
  if (!std::equal(kShardMagic.begin(), kShardMagic.end(), bytes.begin())) {
    return absl::DataLossError("at offset 0: not a token shard (the magic is not MUSTTOKN)");
  }
  const auto version = get<uint32_t>(bytes, 8);
  if (version < kShardVersionWithoutBlocks || version > kShardVersionWithWeights) {
    return wrong(8, "version", version,
                 absl::StrCat("this program reads versions ", kShardVersionWithoutBlocks, " to ",
                              kShardVersionWithWeights, "; tokenize again"));
  }
  const uint32_t crc = crc32_of(bytes.data(), kHeaderCrcOffset);
  if (get<uint32_t>(bytes, kHeaderCrcOffset) != crc) {
    return absl::DataLossError("at offset 60: the header is damaged (its checksum differs)");
  }
  if (const auto header_bytes = get<uint32_t>(bytes, 12); header_bytes != kShardHeaderBytes) {
    return wrong(12, "header_bytes", header_bytes, absl::StrCat("it must be ", kShardHeaderBytes));
  }
  ShardHeader header{get<uint32_t>(bytes, 16), get<uint32_t>(bytes, 20), get<uint64_t>(bytes, 24),
                     get<uint64_t>(bytes, 32), get<uint64_t>(bytes, 40), get<uint32_t>(bytes, 48),
                     get<uint32_t>(bytes, 52)};
  header.has_weights = version == kShardVersionWithWeights;
  if (version != kShardVersionWithoutBlocks) {
    header.block_bytes = get<uint32_t>(bytes, 56);
    if (header.block_bytes != kShardBlockBytes)
      return wrong(56, "block_bytes", header.block_bytes,
                   absl::StrCat("it must be ", kShardBlockBytes));
  }
  if (auto status = check_fields(header, file_bytes); !status.ok()) return status;
  return header;
}

}  // namespace muster::trainer

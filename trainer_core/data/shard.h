// Token shards: what `muster tokenize` writes and training maps into memory. A data set is a folder
// with `shard-00000.mtok`, `shard-00001.mtok`, … and `index.json` (token_index.h), which says which of the shards count, and
// means the concatenation of their tokens.
//
// A shard, version 1. Little endian; offsets in bytes:
//
//    0  u8[8]  magic "MUSTTOKN"          32  u64  token_count
//    8  u32    version = 1               40  u64  document_count
//   12  u32    header_bytes = 64         48  u32  payload_crc32 (zlib's, over all of the payload)
//   16  u32    token_bytes: 2 or 4       52  u64  zero
//   20  u32    vocab_size                60  u32  header_crc32 (over bytes 0 … 59)
//   24  u64    tokenizer_fingerprint     64  u16 or u32 [token_count] token ids, each below vocab_size
//                                            end of file
//
// Two bytes a token when the vocabulary fits in them. Nothing is trusted before both checksums and
// the file's size agree with the header; nothing is allocated from a header's figures.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

constexpr std::array<char, 8> kShardMagic = {'M', 'U', 'S', 'T', 'T', 'O', 'K', 'N'};
constexpr uint32_t kShardVersion = 1;
constexpr size_t kShardHeaderBytes = 64;
// Largest vocabulary that a shard may claim: beyond any tokenizer in use, and small enough that an
// id always fits in an int32.
constexpr uint32_t kVocabSizeMax = 1U << 24;

struct ShardHeader {
  uint32_t token_bytes = 0;
  uint32_t vocab_size = 0;
  uint64_t tokenizer_fingerprint = 0;
  uint64_t token_count = 0;
  uint64_t document_count = 0;
  uint32_t payload_crc32 = 0;
};

// 2 when every id below `vocab_size` fits in 16 bits, else 4.
uint32_t token_bytes_for(uint32_t vocab_size);

std::array<char, kShardHeaderBytes> encode_shard_header(const ShardHeader& header);
// DataLoss says which field is wrong, its value and what would be right. `file_bytes` is the whole
// file's size.
absl::StatusOr<ShardHeader> decode_shard_header(std::span<const char> bytes, uint64_t file_bytes);

// Writes one shard as a stream. One thread. The file has a temporary name until finish() has
// written its header, synced it and renamed it; destroying an unfinished writer removes it.
class ShardWriter {
 public:
  static absl::StatusOr<std::unique_ptr<ShardWriter>> create(const std::string& path,
                                                             uint32_t vocab_size,
                                                             uint64_t tokenizer_fingerprint);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Appends tokens (each below vocab_size), of which `documents` documents end here.
  absl::Status append(std::span<const int32_t> tokens, uint64_t documents);
  uint64_t token_count() const { return header_.token_count; }
  // ResourceExhausted when the disk is full; the file's name is in every message.
  absl::StatusOr<ShardHeader> finish();

 private:
  ShardWriter(std::string path, std::FILE* file, ShardHeader header);

  std::string path_;
  std::string temporary_path_;
  std::FILE* file_;  // owned; null once finished
  ShardHeader header_;
  std::string packed_;  // the last append's bytes; kept to reuse its memory
};

// A shard mapped read-only. Immutable: any thread.
class ShardReader {
 public:
  // NotFound, or DataLoss naming the file, the offset and what is wrong. Reads the header alone.
  static absl::StatusOr<std::unique_ptr<ShardReader>> open(const std::string& path);
  ~ShardReader();
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  const ShardHeader& header() const { return header_; }
  // Reads the whole payload and compares its checksum.
  absl::Status verify_payload() const;
  // Copies tokens [position, position + out.size()). Requires that they exist. DataLoss for an id
  // that is not below vocab_size, with the file and the offset.
  absl::Status read(uint64_t position, std::span<int32_t> out) const;

 private:
  ShardReader(std::string path, const char* data, size_t bytes, ShardHeader header);

  std::string path_;
  const char* data_;  // owned mapping
  size_t bytes_;
  ShardHeader header_;
};

}  // namespace muster::trainer

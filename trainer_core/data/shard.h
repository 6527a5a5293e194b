// Token shards: `muster tokenize` writes them and training maps them into memory. A data set is a
// folder with `shard-00000.mtok`, `shard-00001.mtok`, … and `index.json` (token_index.h), which
// lists the valid shards. The data set is the concatenation of their tokens.
//
// A shard, version 3, or 4 with weights. Little endian; offsets in bytes:
//
//    0  u8[8]  magic "MUSTTOKN"          32  u64  token_count
//    8  u32    version = 3               40  u64  document_count
//   12  u32    header_bytes = 64         48  u32  tokens_crc32 (zlib's, over the tokens)
//   16  u32    token_bytes: 2 or 4       52  u32  documents_crc32 (ends of documents, weights)
//   20  u32    vocab_size                56  u32  block_bytes = 65536
//   24  u64    tokenizer_fingerprint     60  u32  header_crc32 (over bytes 0 … 59)
//
//   64  u16 or u32 [token_count]  token ids, each below vocab_size
//       zeros                     up to a multiple of 8 bytes
//       u64 [document_count]      end of each document: the number of the shard's tokens up to it;
//                                 the last one is token_count
//       f32 [token_count]         version 4: the weight of each token in the loss that predicts it
//       u64 [blocks]              XXH3 (64 bits) of each block: block_bytes of the file before this
//                                 list; the checksum of the first block omits the header
//       end of file
//
// Version 2 is also read: its block_bytes is 0, and it has no checksums of blocks. Versions 2 and 3
// have no weights: all tokens count alike.
//
// Tokens have two bytes if the vocabulary fits. A document lies in one shard, together with its
// end-of-sequence token if there is one. The list of ends marks document boundaries; token ids do
// not, because a text can contain any id. Readers trust no value before the header's checksum and
// the file's size agree with the header, and allocate no memory by a header's values. A corpus is
// too large to verify before training starts, so each block is compared with its checksum when a
// part of it is first read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

constexpr std::array<char, 8> kShardMagic = {'M', 'U', 'S', 'T', 'T', 'O', 'K', 'N'};
constexpr uint32_t kShardVersion = 3;
constexpr uint32_t kShardVersionWithWeights = 4;
constexpr uint32_t kShardVersionWithoutBlocks = 2;
constexpr size_t kShardHeaderBytes = 64;
// The bytes that are read to verify a sequence of some KiB. A disk or network needs little more
// time for them than for a page.
constexpr size_t kShardBlockBytes = size_t{64} << 10;
// The largest vocabulary that a shard may have. It is larger than that of any tokenizer in use, and
// ids fit in an int32.
constexpr uint32_t kVocabSizeMax = 1U << 24;
// The largest weight of a token. Sums of such weights stay far from the limits of fp32.
constexpr float kWeightMax = 1e6F;

// The values of a shard's header.
struct ShardHeader {
  uint32_t token_bytes = 0;
  uint32_t vocab_size = 0;
  uint64_t tokenizer_fingerprint = 0;
  uint64_t token_count = 0;
  uint64_t document_count = 0;
  uint32_t tokens_crc32 = 0;
  uint32_t documents_crc32 = 0;
  uint32_t block_bytes = 0;  // 0: version 2
  bool has_weights = false;  // version 4

  // Return the offsets of the list of document ends, of the weights behind it, and of the end of
  // both, in bytes from the file's start.
  uint64_t documents_offset() const;
  uint64_t weights_offset() const { return documents_offset() + document_count * sizeof(uint64_t); }
  uint64_t payload_end() const {
    return weights_offset() + (has_weights ? token_count * sizeof(float) : 0);
  }
  // Returns the number of blocks with checksums.
  uint64_t blocks() const {
    return block_bytes == 0 ? 0 : (payload_end() + block_bytes - 1) / block_bytes;
  }

  friend bool operator==(const ShardHeader&, const ShardHeader&) = default;
};

// Returns 2 if every id below `vocab_size` fits in 16 bits, otherwise 4.
uint32_t token_bytes_for(uint32_t vocab_size);

// Encodes a header, with its checksum.
std::array<char, kShardHeaderBytes> encode_shard_header(const ShardHeader& header);
// Decodes and checks a header. `file_bytes` is the size of the whole file. Returns DataLoss with
// the wrong field, its value and the expected value.
absl::StatusOr<ShardHeader> decode_shard_header(std::span<const char> bytes, uint64_t file_bytes);

// Writes one shard as a stream. Not thread-safe. The file has a temporary name until finish() has
// written the header, synced the file and renamed it. The destructor removes the file if finish()
// was not called.
class ShardWriter {
 public:
  // Creates the temporary file.
  static absl::StatusOr<std::unique_ptr<ShardWriter>> create(const std::string& path,
                                                             uint32_t vocab_size,
                                                             uint64_t tokenizer_fingerprint,
                                                             bool has_weights = false);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Appends documents. `tokens` has the tokens of all of them, each below vocab_size; `documents`
  // has the number of tokens of each document, at least 1. `weights` has a weight per token if the
  // shard has weights; they are in memory until finish().
  absl::Status append(std::span<const int32_t> tokens, std::span<const uint32_t> documents,
                      std::span<const float> weights = {});
  uint64_t token_count() const { return header_.token_count; }
  uint64_t document_count() const { return header_.document_count; }
  // Completes the shard and returns its header. Returns ResourceExhausted if the disk is full;
  // every error contains the path.
  absl::StatusOr<ShardHeader> finish();

 private:
  class BlockSums;

  ShardWriter(std::string path, std::FILE* file, ShardHeader header);
  // Appends bytes to the file and updates the checksums.
  absl::Status write(const void* data, size_t bytes);

  std::string path_;
  std::string temporary_path_;
  std::FILE* file_;  // owned; null once finished
  ShardHeader header_;
  std::string packed_;  // the bytes of an append(); a member, so that its memory is reused
  std::vector<uint64_t> document_ends_;
  std::vector<float> weights_;
  std::unique_ptr<BlockSums> sums_;
};

// A shard mapped read-only. Thread-safe. If the file is truncated or overwritten while it is open,
// the calls below return an error (mapped_read.h); if it is replaced or removed, the open shard
// does not change. Reads return DataLoss with the path and the offset if the checksum of a block
// differs or, in version 2, if a value is out of range.
class ShardReader {
 public:
  // Maps the file and reads only its header. Returns NotFound, or DataLoss with the path, the
  // offset and the problem.
  static absl::StatusOr<std::unique_ptr<ShardReader>> open(const std::string& path);
  ~ShardReader();
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  const ShardHeader& header() const { return header_; }
  // Reads the complete file, compares its checksums, and checks that document ends ascend and that
  // the last one is token_count.
  absl::Status verify_payload() const;
  // Copies tokens [position, position + out.size()); each is below vocab_size. Requires that they
  // exist.
  absl::Status read(uint64_t position, std::span<int32_t> out) const;
  // Copies the weights of tokens [position, position + out.size()): each is finite and not
  // negative; 1 without weights. Requires that they exist.
  absl::Status read_weights(uint64_t position, std::span<float> out) const;
  // Copies the ends of documents [first, first + out.size()). Requires that they exist. Document d
  // has the tokens from the end of document d - 1 (0 for the first) up to its own end. Each end is
  // greater than the one before and at most token_count.
  absl::Status document_ends(uint64_t first, std::span<uint64_t> out) const;
  // Returns DataLoss if the file was written to since it was opened. Reads may then have returned a
  // mixture of the old and the new contents.
  absl::Status check_unchanged() const;

 private:
  // Identifies the file and its last modification.
  struct Identity {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t modified_ns = 0;
  };

  ShardReader(std::string path, const char* data, size_t bytes, const Identity& identity,
              const ShardHeader& header);
  // Verifies the blocks that contain bytes [begin, end) of the file, which are tokens or document
  // ends.
  absl::Status verify_bytes(uint64_t begin, uint64_t end) const;
  absl::Status verify_block(uint64_t block) const;
  absl::Status cut_off() const;

  std::string path_;
  const char* data_;  // the mapping, owned
  size_t bytes_;
  Identity identity_;
  ShardHeader header_;
  mutable std::vector<std::atomic<uint64_t>> verified_;  // one bit per block
};

}  // namespace muster::trainer

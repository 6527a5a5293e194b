#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "trainer_core/base/check.h"
#include "trainer_core/data/crc32.h"
#include "trainer_core/data/shard.h"

namespace muster::trainer {

// Computes the checksums of the blocks of a file that is written sequentially.
class ShardWriter::BlockSums {
 public:
  BlockSums() : state_(XXH3_createState()) {
    MUSTER_CHECK(state_ != nullptr) << "no memory for a checksum";
    XXH3_64bits_reset(state_);
  }
  ~BlockSums() { XXH3_freeState(state_); }
  BlockSums(const BlockSums&) = delete;
  BlockSums& operator=(const BlockSums&) = delete;

  void add(std::span<const char> bytes) {
    while (!bytes.empty()) {
      const auto part =
          bytes.first(std::min(bytes.size(), kShardBlockBytes - at_ % kShardBlockBytes));
      XXH3_64bits_update(state_, part.data(), part.size());
      at_ += part.size();
      bytes = bytes.subspan(part.size());
      if (at_ % kShardBlockBytes == 0) close();
    }
  }
  // Returns the checksums of all blocks. Nothing may be added afterwards.
  const std::vector<uint64_t>& finish() {
    if (at_ % kShardBlockBytes != 0) close();
    return sums_;
  }

 private:
  void close() {
    sums_.push_back(XXH3_64bits_digest(state_));
    XXH3_64bits_reset(state_);
  }

  XXH3_state_t* state_;  // hash state of the block that contains at_
  size_t at_ = kShardHeaderBytes;
  std::vector<uint64_t> sums_;
};

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::create(const std::string& path,
                                                                 uint32_t vocab_size,
                                                                 uint64_t tokenizer_fingerprint,
                                                                 bool has_weights) {
  if (vocab_size == 0 || vocab_size > kVocabSizeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocabulary of ", vocab_size, "; shards hold 1 to ", kVocabSizeMax));
  }
  const std::string temporary = absl::StrCat(path, ".tmp");
  std::FILE* file = std::fopen(temporary.c_str(), "wbe");
  if (file == nullptr) return errno_status(errno, absl::StrCat("cannot create ", temporary));
  ShardHeader header;
  header.token_bytes = token_bytes_for(vocab_size);
  header.vocab_size = vocab_size;
  header.tokenizer_fingerprint = tokenizer_fingerprint;
  header.block_bytes = kShardBlockBytes;
  header.has_weights = has_weights;
  auto writer = absl::WrapUnique(new ShardWriter(path, file, header));
  const std::array<char, kShardHeaderBytes> blank{};
  if (std::fwrite(blank.data(), 1, blank.size(), file) != blank.size()) {
    return errno_status(errno, absl::StrCat("cannot write ", temporary));
  }
  return writer;
}

ShardWriter::ShardWriter(std::string path, std::FILE* file, ShardHeader header)
    : path_(std::move(path)),
      temporary_path_(absl::StrCat(path_, ".tmp")),
      file_(file),
      header_(header),
      sums_(std::make_unique<BlockSums>()) {}

ShardWriter::~ShardWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  unlink(temporary_path_.c_str());
}

absl::Status ShardWriter::append(std::span<const int32_t> tokens,
                                 std::span<const uint32_t> documents,
                                 std::span<const float> weights) {
  MUSTER_CHECK(weights.size() == (header_.has_weights ? tokens.size() : 0))
      << weights.size() << " weights of " << tokens.size() << " tokens";
  weights_.insert(weights_.end(), weights.begin(), weights.end());
  packed_.resize(tokens.size() * header_.token_bytes);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<uint32_t>(tokens[i]);
    if (id >= header_.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("token id ", tokens[i], " in a vocabulary of ", header_.vocab_size));
    }
    std::memcpy(packed_.data() + i * header_.token_bytes, &id, header_.token_bytes);
  }
  if (auto status = write(packed_.data(), packed_.size()); !status.ok()) return status;
  header_.tokens_crc32 = crc32_of(packed_.data(), packed_.size(), header_.tokens_crc32);
  uint64_t end = header_.token_count;
  for (const uint32_t size : documents) document_ends_.push_back(end += size);
  header_.token_count += tokens.size();
  header_.document_count += documents.size();
  MUSTER_CHECK(end == header_.token_count) << "documents have other tokens than were given";
  return absl::OkStatus();
}

absl::Status ShardWriter::write(const void* data, size_t bytes) {
  if (bytes > 0 && std::fwrite(data, 1, bytes, file_) != bytes)
    return errno_status(errno, absl::StrCat("cannot write ", temporary_path_));
  sums_->add({static_cast<const char*>(data), bytes});
  return absl::OkStatus();
}

absl::StatusOr<ShardHeader> ShardWriter::finish() {
  const uint64_t tokens_end = kShardHeaderBytes + header_.token_count * header_.token_bytes;
  const std::array<char, sizeof(uint64_t)> zeros{};
  const size_t ends_bytes = document_ends_.size() * sizeof(uint64_t);
  const size_t weights_bytes = weights_.size() * sizeof(float);
  header_.documents_crc32 = crc32_of(document_ends_.data(), ends_bytes);
  if (weights_bytes > 0)
    header_.documents_crc32 = crc32_of(weights_.data(), weights_bytes, header_.documents_crc32);
  absl::Status status = write(zeros.data(), header_.documents_offset() - tokens_end);
  if (status.ok()) status = write(document_ends_.data(), ends_bytes);
  if (status.ok()) status = write(weights_.data(), weights_bytes);
  if (!status.ok()) return status;
  const std::vector<uint64_t>& sums = sums_->finish();
  const auto bytes = encode_shard_header(header_);
  if (std::fwrite(sums.data(), sizeof(uint64_t), sums.size(), file_) != sums.size() ||
      std::fseek(file_, 0, SEEK_SET) != 0 ||
      std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size() ||
      std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) {
    return errno_status(errno, absl::StrCat("cannot write ", temporary_path_));
  }
  std::FILE* file = std::exchange(file_, nullptr);
  if (std::fclose(file) != 0 || rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    status = errno_status(errno, absl::StrCat("cannot write ", path_));
    unlink(temporary_path_.c_str());
    return status;
  }
  return header_;
}

}  // namespace muster::trainer

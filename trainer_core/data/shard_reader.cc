#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/base/mapped_read.h"
#include "trainer_core/data/crc32.h"
#include "trainer_core/data/shard.h"

namespace muster::trainer {
namespace {

constexpr size_t kBits = 64;  // per word of verified_

int64_t modified_ns(const struct stat& info) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  return info.st_mtim.tv_sec * kSecondNs + info.st_mtim.tv_nsec;
}

uint64_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<uint64_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

// Returns the error of a failed mmap(). The limit of mappings per process gives the same errno as a
// lack of memory; the message distinguishes them.
absl::Status cannot_map(int error, const std::string& path) {
  constexpr uint64_t kNear = 64;  // the heap may have released some mappings since
  const absl::Status status = errno_status(error, absl::StrCat("cannot map ", path));
  uint64_t most = 0;
  std::ifstream limit("/proc/sys/vm/max_map_count");
  if (error != ENOMEM || !(limit >> most) || mappings() + kNear < most) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(), ": each shard of a data set is a mapping, and a process may have ", most,
      " of them (vm.max_map_count); raise that with sysctl, or tokenise into fewer shards with a "
      "larger --shard-tokens"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardReader>> ShardReader::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno_status(errno, absl::StrCat("cannot open token shard ", path));
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return errno_status(errno, absl::StrCat("cannot examine ", path));
  if (!S_ISREG(info.st_mode))
    return absl::DataLossError(absl::StrCat("token shard ", path, " is not a regular file"));
  const auto bytes = static_cast<size_t>(info.st_size);
  std::array<char, kShardHeaderBytes> head{};
  const ssize_t got = pread(fd, head.data(), head.size(), 0);
  if (got < 0) return errno_status(errno, absl::StrCat("cannot read token shard ", path));
  auto header = decode_shard_header({head.data(), static_cast<size_t>(got)}, bytes);
  if (!header.ok()) {
    const std::string kind = foreign_file_problem(first_bytes(path), bytes);
    return absl::DataLossError(absl::StrCat("token shard ", path, " ", header.status().message(),
                                            kind.empty() ? "" : absl::StrCat("; ", kind)));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return cannot_map(errno, path);
  return absl::WrapUnique(new ShardReader(path, static_cast<const char*>(memory), bytes,
                                          {info.st_dev, info.st_ino, modified_ns(info)}, *header));
}

ShardReader::ShardReader(std::string path, const char* data, size_t bytes, const Identity& identity,
                         const ShardHeader& header)
    : path_(std::move(path)),
      data_(data),
      bytes_(bytes),
      identity_(identity),
      header_(header),
      verified_((header.blocks() + kBits - 1) / kBits) {}

ShardReader::~ShardReader() { munmap(const_cast<char*>(data_), bytes_); }

absl::Status ShardReader::verify_payload() const {
  const uint64_t tokens = header_.token_count * header_.token_bytes;
  const uint64_t table = header_.documents_offset(), table_end = header_.payload_end();
  if (auto status = verify_bytes(kShardHeaderBytes, table_end); !status.ok()) return status;
  uint32_t tokens_crc32 = 0, documents_crc32 = 0;
  const bool is_there = read_mapped(data_, bytes_, [&] {
    tokens_crc32 = crc32_of(data_ + kShardHeaderBytes, tokens);
    documents_crc32 = crc32_of(data_ + table, table_end - table);
  });
  if (!is_there) return cut_off();
  if (tokens_crc32 != header_.tokens_crc32) {
    return absl::DataLossError(
        absl::StrCat("token shard ", path_, " is damaged: the checksum of its tokens (offsets ",
                     kShardHeaderBytes, " to ", kShardHeaderBytes + tokens, ") differs"));
  }
  if (documents_crc32 != header_.documents_crc32) {
    return absl::DataLossError(absl::StrCat("token shard ", path_,
                                            " is damaged: the checksum of its documents (offsets ",
                                            table, " to ", table_end, ") differs"));
  }
  uint64_t before = 0;
  for (uint64_t document = 0; document < header_.document_count; ++document) {
    if (auto status = document_ends(document, {&before, 1}); !status.ok()) return status;
  }
  if (before == header_.token_count) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("token shard ", path_, ": its documents end at token ",
                                          before, " of ", header_.token_count));
}

absl::Status ShardReader::verify_bytes(uint64_t begin, uint64_t end) const {
  if (header_.block_bytes == 0 || begin == end) return absl::OkStatus();
  for (uint64_t block = begin / kShardBlockBytes; block <= (end - 1) / kShardBlockBytes; ++block) {
    std::atomic<uint64_t>& word = verified_[block / kBits];
    const uint64_t bit = uint64_t{1} << (block % kBits);
    if ((word.load(std::memory_order_relaxed) & bit) != 0) continue;
    if (auto status = verify_block(block); !status.ok()) return status;
    word.fetch_or(bit, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

absl::Status ShardReader::verify_block(uint64_t block) const {
  const uint64_t begin = std::max<uint64_t>(block * kShardBlockBytes, kShardHeaderBytes);
  const uint64_t end = std::min((block + 1) * kShardBlockBytes, header_.payload_end());
  bool is_whole = false;
  const bool is_there = read_mapped(data_, bytes_, [&] {
    uint64_t stored = 0;
    std::memcpy(&stored, data_ + header_.payload_end() + block * sizeof(stored), sizeof(stored));
    is_whole = XXH3_64bits(data_ + begin, end - begin) == stored;
  });
  if (!is_there) return cut_off();
  if (is_whole) return absl::OkStatus();
  // If the file was written to, report that instead of a damaged disk.
  if (auto status = check_unchanged(); !status.ok()) return status;
  return absl::DataLossError(absl::StrCat(
      "token shard ", path_, " is damaged: the checksum of its bytes ", begin, " to ", end - 1,
      " differs (the one stored at offset ", header_.payload_end() + block * sizeof(uint64_t),
      "); bring back a whole copy of it, or tokenise again"));
}

absl::Status ShardReader::document_ends(uint64_t first, std::span<uint64_t> out) const {
  constexpr size_t kEndBytes = sizeof(uint64_t);
  const uint64_t offset = header_.documents_offset();
  const uint64_t begin = offset + (first > 0 ? first - 1 : 0) * kEndBytes;
  if (auto status = verify_bytes(begin, offset + (first + out.size()) * kEndBytes); !status.ok())
    return status;
  const char* const table = data_ + offset;
  uint64_t before = 0;
  const bool is_there = read_mapped(data_, bytes_, [&] {
    if (first > 0) std::memcpy(&before, table + (first - 1) * kEndBytes, kEndBytes);
    std::memcpy(out.data(), table + first * kEndBytes, out.size() * kEndBytes);
  });
  if (!is_there) return cut_off();
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] <= before || out[i] > header_.token_count) {
      return absl::DataLossError(absl::StrCat(
          "token shard ", path_, " at offset ", offset + (first + i) * kEndBytes, ": document ",
          first + i, " ends at token ", out[i], "; it should be behind token ", before,
          ", and at most ", header_.token_count));
    }
    before = out[i];
  }
  return absl::OkStatus();
}

absl::Status ShardReader::read(uint64_t position, std::span<int32_t> out) const {
  const uint64_t begin = kShardHeaderBytes + position * header_.token_bytes;
  if (auto status = verify_bytes(begin, begin + out.size() * header_.token_bytes); !status.ok())
    return status;
  const char* from = data_ + begin;
  uint32_t largest = 0;
  const bool is_there = read_mapped(data_, bytes_, [&] {
    for (size_t i = 0; i < out.size(); ++i) {
      uint32_t id = 0;
      std::memcpy(&id, from + i * header_.token_bytes, header_.token_bytes);
      largest = std::max(largest, id);
      out[i] = static_cast<int32_t>(id);
    }
  });
  if (!is_there) return cut_off();
  if (largest < header_.vocab_size) return absl::OkStatus();
  const auto bad = std::ranges::find_if(
      out, [&](int32_t id) { return static_cast<uint32_t>(id) >= header_.vocab_size; });
  const auto place = position + static_cast<uint64_t>(bad - out.begin());
  return absl::DataLossError(absl::StrCat(
      "token shard ", path_, " at offset ", kShardHeaderBytes + place * header_.token_bytes,
      ": token id ", static_cast<uint32_t>(*bad), " in a vocabulary of ", header_.vocab_size));
}

absl::Status ShardReader::read_weights(uint64_t position, std::span<float> out) const {
  if (!header_.has_weights) {
    std::ranges::fill(out, 1.0F);
    return absl::OkStatus();
  }
  const uint64_t begin = header_.weights_offset() + position * sizeof(float);
  if (auto status = verify_bytes(begin, begin + out.size_bytes()); !status.ok()) return status;
  const bool is_there =
      read_mapped(data_, bytes_, [&] { std::memcpy(out.data(), data_ + begin, out.size_bytes()); });
  if (!is_there) return cut_off();
  const auto bad = std::ranges::find_if(
      out, [](float weight) { return !(weight >= 0 && weight <= kWeightMax); });
  if (bad == out.end()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("token shard ", path_, " at offset ",
                   begin + static_cast<uint64_t>(bad - out.begin()) * sizeof(float),
                   ": a weight is ", *bad, "; it must be 0 to ", kWeightMax));
}

absl::Status ShardReader::cut_off() const {
  return absl::DataLossError(absl::StrCat("token shard ", path_, " was cut off or cannot be read ",
                                          "any more while it is in use; it had ", bytes_,
                                          " bytes"));
}

absl::Status ShardReader::check_unchanged() const {
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) return absl::OkStatus();  // removed: the mapping remains
  if (info.st_dev != identity_.device || info.st_ino != identity_.inode) return absl::OkStatus();
  if (static_cast<size_t>(info.st_size) == bytes_ && modified_ns(info) == identity_.modified_ns)
    return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("token shard ", path_, " was written to while it is in use: it had ", bytes_,
                   " bytes and has ", info.st_size, "; tokenise into another folder, and restart"));
}

}  // namespace muster::trainer

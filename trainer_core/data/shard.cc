#include "trainer_core/data/shard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <zlib.h>

#include "common/errno_status.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/mapped_read.h"

namespace muster::trainer {
namespace {

static_assert(std::endian::native == std::endian::little,
              "shards are copied as they are in memory");

constexpr size_t kHeaderCrcOffset = 60;
constexpr size_t kEndBytes = sizeof(uint64_t);

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

uint32_t crc32_of(uint32_t start, const void* data, size_t bytes) {
  return static_cast<uint32_t>(crc32_z(start, static_cast<const Bytef*>(data), bytes));
}

absl::Status wrong(size_t offset, const std::string& field, uint64_t value,
                   const std::string& right) {
  return absl::DataLossError(
      absl::StrCat("at offset ", offset, ": ", field, " is ", value, "; ", right));
}

// Where the ends of documents begin behind so many bytes of tokens: each lies at a multiple of its size.
uint64_t padded(uint64_t bytes) { return (bytes + kEndBytes - 1) / kEndBytes * kEndBytes; }

int64_t modified_ns(const struct stat& info) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  return info.st_mtim.tv_sec * kSecondNs + info.st_mtim.tv_nsec;
}

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
  // The first divides instead of multiplying: a hostile count must not wrap around.
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
  if (const uint64_t excess = table - header.document_count * kEndBytes; excess != 0) {
    return absl::DataLossError(
        absl::StrCat("at offset ", file_bytes - excess, ": ", excess,
                     " bytes follow the last document's end; the file should "
                     "end there"));
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t token_bytes_for(uint32_t vocab_size) { return vocab_size <= (1U << 16) ? 2 : 4; }

std::array<char, kShardHeaderBytes> encode_shard_header(const ShardHeader& header) {
  std::array<char, kShardHeaderBytes> bytes{};
  std::memcpy(bytes.data(), kShardMagic.data(), kShardMagic.size());
  put(bytes.data(), 8, kShardVersion);
  put(bytes.data(), 12, static_cast<uint32_t>(kShardHeaderBytes));
  put(bytes.data(), 16, header.token_bytes);
  put(bytes.data(), 20, header.vocab_size);
  put(bytes.data(), 24, header.tokenizer_fingerprint);
  put(bytes.data(), 32, header.token_count);
  put(bytes.data(), 40, header.document_count);
  put(bytes.data(), 48, header.tokens_crc32);
  put(bytes.data(), 52, header.documents_crc32);
  put(bytes.data(), kHeaderCrcOffset, crc32_of(0, bytes.data(), kHeaderCrcOffset));
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
  if (const auto version = get<uint32_t>(bytes, 8); version != kShardVersion) {
    return wrong(8, "version", version,
                 absl::StrCat("this program reads version ", kShardVersion, "; tokenise again"));
  }
  const uint32_t crc = crc32_of(0, bytes.data(), kHeaderCrcOffset);
  if (get<uint32_t>(bytes, kHeaderCrcOffset) != crc) {
    return absl::DataLossError("at offset 60: the header is damaged (its checksum differs)");
  }
  if (const auto header_bytes = get<uint32_t>(bytes, 12); header_bytes != kShardHeaderBytes) {
    return wrong(12, "header_bytes", header_bytes, absl::StrCat("it must be ", kShardHeaderBytes));
  }
  ShardHeader header{get<uint32_t>(bytes, 16), get<uint32_t>(bytes, 20), get<uint64_t>(bytes, 24),
                     get<uint64_t>(bytes, 32), get<uint64_t>(bytes, 40), get<uint32_t>(bytes, 48),
                     get<uint32_t>(bytes, 52)};
  if (auto status = check_fields(header, file_bytes); !status.ok()) return status;
  return header;
}

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::create(const std::string& path,
                                                                 uint32_t vocab_size,
                                                                 uint64_t tokenizer_fingerprint) {
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
      header_(header) {}

ShardWriter::~ShardWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  unlink(temporary_path_.c_str());
}

absl::Status ShardWriter::append(std::span<const int32_t> tokens,
                                 std::span<const uint32_t> documents) {
  packed_.resize(tokens.size() * header_.token_bytes);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<uint32_t>(tokens[i]);
    if (id >= header_.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("token id ", tokens[i], " in a vocabulary of ", header_.vocab_size));
    }
    std::memcpy(packed_.data() + i * header_.token_bytes, &id, header_.token_bytes);
  }
  if (std::fwrite(packed_.data(), 1, packed_.size(), file_) != packed_.size()) {
    return errno_status(errno, absl::StrCat("cannot write ", temporary_path_));
  }
  header_.tokens_crc32 = crc32_of(header_.tokens_crc32, packed_.data(), packed_.size());
  uint64_t end = header_.token_count;
  for (const uint32_t size : documents) document_ends_.push_back(end += size);
  header_.token_count += tokens.size();
  header_.document_count += documents.size();
  MUSTER_CHECK(end == header_.token_count) << "documents have other tokens than were given";
  return absl::OkStatus();
}

absl::StatusOr<ShardHeader> ShardWriter::finish() {
  const uint64_t token_bytes = header_.token_count * header_.token_bytes;
  const std::array<char, kEndBytes> zeros{};
  const size_t gap = padded(token_bytes) - token_bytes;
  const size_t ends = document_ends_.size();
  header_.documents_crc32 = crc32_of(0, document_ends_.data(), ends * kEndBytes);
  const auto bytes = encode_shard_header(header_);
  if (std::fwrite(zeros.data(), 1, gap, file_) != gap ||
      (ends > 0 && std::fwrite(document_ends_.data(), kEndBytes, ends, file_) != ends) ||
      std::fseek(file_, 0, SEEK_SET) != 0 ||
      std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size() ||
      std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) {
    return errno_status(errno, absl::StrCat("cannot write ", temporary_path_));
  }
  std::FILE* file = std::exchange(file_, nullptr);
  if (std::fclose(file) != 0 || rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    const absl::Status status = errno_status(errno, absl::StrCat("cannot write ", path_));
    unlink(temporary_path_.c_str());
    return status;
  }
  return header_;
}

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
  if (!header.ok())
    return absl::DataLossError(absl::StrCat("token shard ", path, " ", header.status().message()));
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno_status(errno, absl::StrCat("cannot map ", path));
  return absl::WrapUnique(new ShardReader(path, static_cast<const char*>(memory), bytes,
                                          {info.st_dev, info.st_ino, modified_ns(info)}, *header));
}

ShardReader::ShardReader(std::string path, const char* data, size_t bytes, const Identity& identity,
                         const ShardHeader& header)
    : path_(std::move(path)), data_(data), bytes_(bytes), identity_(identity), header_(header) {}

ShardReader::~ShardReader() { munmap(const_cast<char*>(data_), bytes_); }

absl::Status ShardReader::verify_payload() const {
  const uint64_t tokens = header_.token_count * header_.token_bytes;
  const uint64_t table = kShardHeaderBytes + padded(tokens);
  uint32_t tokens_crc32 = 0, documents_crc32 = 0;
  const bool is_there = read_mapped(data_, bytes_, [&] {
    tokens_crc32 = crc32_of(0, data_ + kShardHeaderBytes, tokens);
    documents_crc32 = crc32_of(0, data_ + table, bytes_ - table);
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
                                            table, " to ", bytes_, ") differs"));
  }
  uint64_t before = 0;
  for (uint64_t document = 0; document < header_.document_count; ++document) {
    if (auto status = document_ends(document, {&before, 1}); !status.ok()) return status;
  }
  if (before == header_.token_count) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("token shard ", path_, ": its documents end at token ",
                                          before, " of ", header_.token_count));
}

absl::Status ShardReader::document_ends(uint64_t first, std::span<uint64_t> out) const {
  const char* const table =
      data_ + kShardHeaderBytes + padded(header_.token_count * header_.token_bytes);
  uint64_t before = 0;
  const bool is_there = read_mapped(data_, bytes_, [&] {
    if (first > 0) std::memcpy(&before, table + (first - 1) * kEndBytes, kEndBytes);
    std::memcpy(out.data(), table + first * kEndBytes, out.size() * kEndBytes);
  });
  if (!is_there) return cut_off();
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] <= before || out[i] > header_.token_count) {
      const uint64_t offset = static_cast<uint64_t>(table - data_) + (first + i) * kEndBytes;
      return absl::DataLossError(absl::StrCat(
          "token shard ", path_, " at offset ", offset, ": document ", first + i, " ends at token ",
          out[i], "; it should be behind token ", before, ", and at most ", header_.token_count));
    }
    before = out[i];
  }
  return absl::OkStatus();
}

absl::Status ShardReader::read(uint64_t position, std::span<int32_t> out) const {
  const char* from = data_ + kShardHeaderBytes + position * header_.token_bytes;
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

absl::Status ShardReader::cut_off() const {
  return absl::DataLossError(absl::StrCat("token shard ", path_, " was cut off or cannot be read ",
                                          "any more while it is in use; it had ", bytes_,
                                          " bytes"));
}

absl::Status ShardReader::check_unchanged() const {
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) return absl::OkStatus();  // removed: we still have it
  if (info.st_dev != identity_.device || info.st_ino != identity_.inode) return absl::OkStatus();
  if (static_cast<size_t>(info.st_size) == bytes_ && modified_ns(info) == identity_.modified_ns)
    return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("token shard ", path_, " was written to while it is in use: it had ", bytes_,
                   " bytes and has ", info.st_size, "; tokenise into another folder, and restart"));
}

}  // namespace muster::trainer

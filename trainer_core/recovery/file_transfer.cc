#include "trainer_core/recovery/file_transfer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "trainer_core/base/check.h"
#include "trainer_core/checkpoint/local_store.h"

namespace muster::trainer {
namespace {

// Collectives transfer typed elements, so bytes are sent as int32, with a padded last element.
constexpr size_t kNumberBytes = sizeof(int32_t);
static_assert(kBlockBytes % kNumberBytes == 0);

size_t numbers_of(size_t bytes) { return (bytes + kNumberBytes - 1) / kNumberBytes; }

// Exchanges a block. A direction without a partner has 0 bytes.
absl::Status exchange(ProcessGroup& group, const Partners& partners, const char* out,
                      size_t out_bytes, char* in, size_t in_bytes, std::string_view name) {
  const ConstBufferView outgoing(out, numbers_of(out_bytes), DType::kI32);
  const BufferView incoming(in, numbers_of(in_bytes), DType::kI32);
  if (out_bytes > 0 && in_bytes > 0)
    return group.send_recv(outgoing, partners.to, incoming, partners.from, name);
  if (out_bytes > 0) return group.send(outgoing, partners.to, name);
  if (in_bytes > 0) return group.recv(incoming, partners.from, name);
  return absl::OkStatus();
}

// Reads the blocks of a file to send. An unreadable block is sent as it is.
class Sender {
 public:
  Sender(const std::string& folder, const StoredFile& file, absl::Status& local) : local_(local) {
    auto reader = BlockReader::open(folder, file.name, file.digest);
    if (reader.ok()) {
      reader_ = std::move(*reader);
    } else {
      std::memset(buffer_.get(), 0, kBlockBytes);
      local_.Update(reader.status());
    }
  }
  const char* read(size_t index) {
    if (reader_ == nullptr) return buffer_.get();
    const auto block = reader_->read(index, buffer_.get());
    local_.Update(block.ok() ? reader_->verify(index, *block) : block.status());
    return buffer_.get();
  }

 private:
  std::unique_ptr<char[]> buffer_ = make_block();
  std::unique_ptr<BlockReader> reader_;
  absl::Status& local_;
};

// Writes the received file. After a write error the rest is discarded.
class Receiver {
 public:
  Receiver(const std::string& folder, const StoredFile& file, absl::Status& local) : local_(local) {
    auto arriving = ArrivingFile::create(folder, file);
    if (arriving.ok()) file_ = std::move(*arriving);
    local_.Update(arriving.status());
  }
  char* buffer() { return buffer_.get(); }
  void take(size_t bytes) {
    if (file_ == nullptr) return;
    const absl::Status written = file_->append({buffer_.get(), bytes});
    local_.Update(written);
    if (!written.ok()) file_ = nullptr;
  }
  void finish() {
    if (file_ != nullptr) local_.Update(file_->finish());
  }

 private:
  std::unique_ptr<char[]> buffer_ = make_block();
  std::unique_ptr<ArrivingFile> file_;
  absl::Status& local_;
};

// Returns the bytes of block `index`; 0 after the last one, or without a file.
size_t block_bytes(const StoredFile* file, size_t index) {
  if (file == nullptr || index >= file->digest.blocks.size()) return 0;
  return std::min<uint64_t>(kBlockBytes, file->digest.bytes - index * kBlockBytes);
}

}  // namespace

Partners partners_in(const std::vector<FileTransfer>& round, int rank) {
  Partners partners;
  for (const FileTransfer& transfer : round) {
    if (transfer.from == rank) partners.to = transfer.to;
    if (transfer.to == rank) partners.from = transfer.from;
  }
  return partners;
}

absl::StatusOr<std::string> exchange_texts(ProcessGroup& group, const Partners& partners,
                                           std::string_view mine, std::string_view name) {
  const bool sends = partners.to != kNoPeer, receives = partners.from != kNoPeer;
  MUSTER_CHECK(mine.size() <= kManifestBytesMax) << mine.size() << " bytes";
  const auto own = static_cast<int32_t>(mine.size());
  int32_t bytes = 0;
  absl::Status status =
      exchange(group, partners, reinterpret_cast<const char*>(&own), sends ? sizeof(own) : 0,
               reinterpret_cast<char*>(&bytes), receives ? sizeof(bytes) : 0, name);
  if (!status.ok()) return status;
  std::vector<int32_t> outgoing(numbers_of(mine.size())),
      incoming(numbers_of(static_cast<size_t>(bytes)));
  if (!mine.empty()) std::memcpy(outgoing.data(), mine.data(), mine.size());
  status = exchange(group, partners, reinterpret_cast<const char*>(outgoing.data()),
                    sends ? mine.size() : 0, reinterpret_cast<char*>(incoming.data()),
                    static_cast<size_t>(bytes), name);
  if (!status.ok()) return status;
  return std::string(reinterpret_cast<const char*>(incoming.data()), static_cast<size_t>(bytes));
}

absl::Status exchange_files(ProcessGroup& group, const Partners& partners,
                            const std::string& folder, const StoredFile* outgoing,
                            const StoredFile* incoming, std::string_view name,
                            absl::Status& local) {
  std::unique_ptr<Sender> sender;
  std::unique_ptr<Receiver> receiver;
  if (outgoing != nullptr) sender = std::make_unique<Sender>(folder, *outgoing, local);
  if (incoming != nullptr) receiver = std::make_unique<Receiver>(folder, *incoming, local);
  for (size_t block = 0;; ++block) {
    const size_t out = block_bytes(outgoing, block), in = block_bytes(incoming, block);
    if (out == 0 && in == 0) break;
    const auto status = exchange(group, partners, out > 0 ? sender->read(block) : nullptr, out,
                                 in > 0 ? receiver->buffer() : nullptr, in, name);
    if (!status.ok()) return status;
    if (in > 0) receiver->take(in);
  }
  if (receiver != nullptr) receiver->finish();
  return absl::OkStatus();
}

}  // namespace muster::trainer

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include "common/errno_status.h"
#include "common/file_write.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are copied as they are in memory");

// Checksum and write go through the data in pieces, so that the second finds it in the cache.
constexpr size_t kPieceBytes = 4 << 20;

uint64_t elements_of(const std::vector<int64_t>& shape) {
  uint64_t elements = 1;
  for (const int64_t dim : shape) elements *= static_cast<uint64_t>(dim);
  return elements;
}

std::string encode_header(const std::vector<TensorToWrite>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}, {"writer", "muster"}};
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    const uint64_t end = offset + elements_of(tensor.shape) * sizeof(float);
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + json;
}

class DigestingFile {
 public:
  explicit DigestingFile(int fd) : fd_(fd) {}

  absl::Status append(const char* data, size_t bytes) {
    while (bytes > 0) {
      const size_t piece = std::min(bytes, kPieceBytes);
      digest_.crc32 = static_cast<uint32_t>(
          crc32_z(digest_.crc32, reinterpret_cast<const Bytef*>(data), piece));
      if (auto status = write_all(fd_, {data, piece}); !status.ok()) return status;
      data += piece;
      bytes -= piece;
      digest_.bytes += piece;
    }
    return absl::OkStatus();
  }

  const FileDigest& digest() const { return digest_; }

 private:
  int fd_;
  FileDigest digest_;
};

absl::Status write_everything(DigestingFile& file, const std::vector<TensorToWrite>& tensors) {
  const std::string header = encode_header(tensors);
  if (auto status = file.append(header.data(), header.size()); !status.ok()) return status;
  for (const TensorToWrite& tensor : tensors) {
    const auto* bytes = reinterpret_cast<const char*>(tensor.data);
    if (auto status = file.append(bytes, elements_of(tensor.shape) * sizeof(float)); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileDigest> write_safetensors(const std::string& path,
                                             const std::vector<TensorToWrite>& tensors) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status(errno, absl::StrCat("cannot create ", path));
  absl::Cleanup close_file = [fd] { close(fd); };
  DigestingFile file(fd);
  absl::Status status = write_everything(file, tensors);
  if (status.ok() && fsync(fd) != 0) status = errno_status(errno, "fsync");
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("cannot write ", path, ": ", status.message()));
  }
  return file.digest();
}

}  // namespace muster::trainer

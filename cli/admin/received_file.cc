#include "cli/admin/received_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"

namespace muster::cli {

ReceivedFile::ReceivedFile(std::string path)
    : path_(std::move(path)), partial_(absl::StrCat(path_, ".partial")) {
  EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr);
}

ReceivedFile::~ReceivedFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(partial_.c_str());
}

absl::Status ReceivedFile::receive(
    const std::function<absl::Status(const std::function<bool(const v1::FileChunk&)>&)>& call) {
  std::error_code error;  // that of a folder that cannot be read follows when the file is created
  if (std::filesystem::is_directory(path_, error))
    return absl::InvalidArgumentError(
        absl::StrCat("--out=", path_, " is a folder: name a file in it"));
  absl::Status written;
  absl::Status status = call([&](const v1::FileChunk& chunk) {
    written = take(chunk);
    return written.ok();
  });
  status.Update(written);
  return status.ok() ? complete() : status;
}

absl::Status ReceivedFile::take(const v1::FileChunk& chunk) {
  // Only the owner may read it: a copy of the state has the environments of jobs.
  if (fd_ < 0) fd_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd_ < 0 || fchmod(fd_, 0600) != 0) return errno_status(errno, partial_);
  if (absl::Status status = write_all(fd_, chunk.data()); !status.ok())
    return absl::Status(status.code(), absl::StrCat(partial_, ": ", status.message()));
  EVP_DigestUpdate(digest_.get(), chunk.data().data(), chunk.data().size());
  bytes_ += chunk.data().size();
  expected_bytes_ = chunk.total_bytes();
  expected_sha256_ = chunk.sha256();
  return absl::OkStatus();
}

// Verifies size and digest, and gives the file its name.
absl::Status ReceivedFile::complete() {
  sha256_.resize(EVP_MAX_MD_SIZE);
  unsigned size = 0;
  EVP_DigestFinal_ex(digest_.get(), reinterpret_cast<unsigned char*>(sha256_.data()), &size);
  sha256_.resize(size);
  if (fd_ < 0 || bytes_ != expected_bytes_ || sha256_ != expected_sha256_) {
    return absl::DataLossError(absl::StrCat("the file arrived incomplete: ", bytes_, " of ",
                                            expected_bytes_, " bytes; try again"));
  }
  if (fsync(fd_) != 0) return errno_status(errno, partial_);
  if (rename(partial_.c_str(), path_.c_str()) != 0) return errno_status(errno, path_);
  close(std::exchange(fd_, -1));
  const std::string folder = std::filesystem::path(path_).parent_path();
  return sync_path(folder.empty() ? "." : folder);
}

std::string ReceivedFile::sha256() const { return absl::BytesToHexString(sha256_); }

}  // namespace muster::cli

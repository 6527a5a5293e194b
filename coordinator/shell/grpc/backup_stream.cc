#include "coordinator/shell/grpc/backup_stream.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/shell/grpc/grpc_status.h"

namespace muster::coordinator {
namespace {

// Well below the limit of a message.
constexpr uint64_t kChunkBytes = 1 << 20;

}  // namespace

BackupStream::BackupStream(std::shared_ptr<ShellMetrics> metrics, std::shared_ptr<void> ticket)
    : count_(std::move(metrics), "BackupState"), ticket_(std::move(ticket)) {
  EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr);
}

void BackupStream::send(absl::StatusOr<StateBackup> backup) {
  const std::lock_guard lock(mutex_);
  if (!backup.ok()) return finish_locked(backup.status());
  backup_.emplace(*std::move(backup));
  file_.open(backup_->path(), std::ios::binary);
  std::error_code error;
  total_bytes_ = std::filesystem::file_size(backup_->path(), error);
  if (error || !file_)
    return finish_locked(absl::InternalError(
        absl::StrCat("the copy of the state, ", backup_->path(), ", cannot be read")));
  write_next_locked();
}

void BackupStream::write_next_locked() {
  if (finished_) return;
  if (sent_bytes_ == total_bytes_) return finish_locked(absl::OkStatus());
  std::string data(std::min(kChunkBytes, total_bytes_ - sent_bytes_), '\0');
  if (!file_.read(data.data(), static_cast<std::streamsize>(data.size())))
    return finish_locked(absl::InternalError(
        absl::StrCat("the copy of the state, ", backup_->path(), ", cannot be read")));
  EVP_DigestUpdate(digest_.get(), data.data(), data.size());
  sent_bytes_ += data.size();
  chunk_.set_data(std::move(data));
  chunk_.set_total_bytes(total_bytes_);
  if (sent_bytes_ == total_bytes_) {
    std::string sha256(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    EVP_DigestFinal_ex(digest_.get(), reinterpret_cast<unsigned char*>(sha256.data()), &size);
    sha256.resize(size);
    chunk_.set_sha256(std::move(sha256));
  }
  StartWrite(&chunk_);
}

void BackupStream::finish_locked(const absl::Status& status) {
  if (std::exchange(finished_, true)) return;
  count_.count_end(status);
  Finish(to_grpc(status));
}

void BackupStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  if (!ok) return finish_locked(absl::CancelledError("the caller is gone"));
  write_next_locked();
}

void BackupStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  finish_locked(absl::CancelledError("the caller is gone"));
}

void BackupStream::OnDone() { self_.reset(); }

}  // namespace muster::coordinator

#include "coordinator/shell/grpc/file_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/shell/grpc/grpc_status.h"

namespace muster::coordinator {
namespace {

// Well below the limit of a message.
constexpr uint64_t kChunkBytes = 1 << 20;

}  // namespace

FileStream::FileStream(std::shared_ptr<ShellMetrics> metrics, std::string_view method,
                       std::stop_source stop, std::shared_ptr<void> ticket, Audit audit)
    : count_(std::move(metrics), method),
      stop_(std::move(stop)),
      audit_(std::move(audit)),
      ticket_(std::move(ticket)) {
  EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr);
}

void FileStream::send(absl::StatusOr<SentFile> file) {
  const std::lock_guard lock(mutex_);
  is_made_ = true;
  if (!file.ok()) return finish_locked(file.status());
  file_.emplace(*std::move(file));
  write_next_locked();
}

void FileStream::write_next_locked() {
  if (finished_) return;
  if (sent_bytes_ == file_->size) return finish_locked(absl::OkStatus());
  std::string data(std::min(kChunkBytes, file_->size - sent_bytes_), '\0');
  if (!file_->bytes->read(data.data(), static_cast<std::streamsize>(data.size())))
    return finish_locked(absl::InternalError(absl::StrCat(file_->name, " cannot be read")));
  EVP_DigestUpdate(digest_.get(), data.data(), data.size());
  sent_bytes_ += data.size();
  chunk_.set_data(std::move(data));
  chunk_.set_total_bytes(file_->size);
  if (sent_bytes_ == file_->size) {
    std::string sha256(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    EVP_DigestFinal_ex(digest_.get(), reinterpret_cast<unsigned char*>(sha256.data()), &size);
    sha256.resize(size);
    chunk_.set_sha256(std::move(sha256));
  }
  StartWrite(&chunk_);
}

void FileStream::finish_locked(const absl::Status& status) {
  if (std::exchange(finished_, true)) return;
  stop_.request_stop();
  count_.count_end(status);
  audit_.finish(status);
  // After the end the caller may call again at once.
  if (is_made_) ticket_.reset();
  Finish(to_grpc(status));
}

void FileStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  if (!ok) return finish_locked(absl::CancelledError("the caller is gone"));
  write_next_locked();
}

void FileStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  finish_locked(absl::CancelledError("the caller is gone"));
}

void FileStream::OnDone() { self_.reset(); }

}  // namespace muster::coordinator

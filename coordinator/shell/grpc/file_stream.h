// One call that sends a file which is made for it: a copy of the state, or a profile.
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <istream>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

#include "coordinator/shell/audit/audit_log.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "muster/v1/admin.grpc.pb.h"

namespace muster::coordinator {

// The bytes to send.
struct SentFile {
  std::string name;                     // for errors
  std::shared_ptr<void> owner;          // destroyed with the stream
  std::unique_ptr<std::istream> bytes;  // destroyed before the owner
  uint64_t size = 0;
};

// The stream owns itself from its creation until gRPC calls OnDone(). Thread-safe.
class FileStream final : public grpc::ServerWriteReactor<v1::FileChunk>,
                         public std::enable_shared_from_this<FileStream> {
 public:
  // `method`: a constant ("BackupState"). `stop` is requested when the stream ends. `ticket` is
  // destroyed before the caller gets the end of the file or its error, at the latest with the
  // stream.
  FileStream(std::shared_ptr<ShellMetrics> metrics, std::string_view method, std::stop_source stop,
             std::shared_ptr<void> ticket, Audit audit);
  void begin() { self_ = shared_from_this(); }

  // Sends the file, or ends the stream with the error. Called once.
  void send(absl::StatusOr<SentFile> file);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct FreeDigest {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };

  void write_next_locked();
  void finish_locked(const absl::Status& status);

  const StreamCount count_;
  std::stop_source stop_;
  const Audit audit_;
  std::shared_ptr<FileStream> self_;

  std::mutex mutex_;
  // The members below are guarded by mutex_.
  std::shared_ptr<void> ticket_;
  bool is_made_ = false;  // send() was called
  std::optional<SentFile> file_;
  uint64_t sent_bytes_ = 0;
  std::unique_ptr<EVP_MD_CTX, FreeDigest> digest_{EVP_MD_CTX_new()};
  v1::FileChunk chunk_;
  bool finished_ = false;
};

}  // namespace muster::coordinator

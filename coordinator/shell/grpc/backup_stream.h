// One BackupState call: sends the copy of the state once it is made.
#pragma once

#include <openssl/evp.h>

#include <fstream>
#include <memory>
#include <mutex>
#include <optional>

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

#include "coordinator/shell/metrics/shell_metrics.h"
#include "coordinator/shell/storage/state_backup.h"
#include "muster/v1/admin.grpc.pb.h"

namespace muster::coordinator {

// The stream owns itself from its creation until gRPC calls OnDone(). Thread-safe.
class BackupStream final : public grpc::ServerWriteReactor<v1::BackupChunk>,
                           public std::enable_shared_from_this<BackupStream> {
 public:
  // `ticket` is destroyed with the stream.
  BackupStream(std::shared_ptr<ShellMetrics> metrics, std::shared_ptr<void> ticket);
  void begin() { self_ = shared_from_this(); }

  // Sends the copy, or ends the stream with the error. Called once.
  void send(absl::StatusOr<StateBackup> backup);

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
  const std::shared_ptr<void> ticket_;
  std::shared_ptr<BackupStream> self_;

  std::mutex mutex_;
  std::optional<StateBackup> backup_;
  std::ifstream file_;
  uint64_t total_bytes_ = 0;
  uint64_t sent_bytes_ = 0;
  std::unique_ptr<EVP_MD_CTX, FreeDigest> digest_{EVP_MD_CTX_new()};
  v1::BackupChunk chunk_;
  bool finished_ = false;
};

}  // namespace muster::coordinator

// Makes the files that a method sends, one at a time, on its own thread. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

#include "coordinator/shell/grpc/file_stream.h"
#include "coordinator/shell/metrics/shell_metrics.h"

namespace muster::coordinator {

class FileMaker {
 public:
  // `method`: a constant ("BackupState"). `file`: for errors ("copy of the state").
  FileMaker(std::shared_ptr<ShellMetrics> metrics, std::string_view method, std::string file)
      : metrics_(std::move(metrics)), method_(method), file_(std::move(file)) {}
  // Requests the stop of a running `make`, and waits for it.
  ~FileMaker();

  // Answers a call with what `make` returns, or with RESOURCE_EXHAUSTED while another call is
  // answered. `make` should soon return Cancelled once a stop is requested: the caller is gone, or
  // the coordinator leaves.
  grpc::ServerWriteReactor<v1::FileChunk>* answer(
      Audit audit, std::function<absl::StatusOr<SentFile>(const std::stop_token&)> make);

 private:
  const std::shared_ptr<ShellMetrics> metrics_;
  const std::string_view method_;
  const std::string file_;
  // True from the begin of a call to the end of its stream, which may outlive this object.
  const std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>(false);
  std::mutex mutex_;
  std::stop_source stop_;  // guarded by mutex_
  std::thread thread_;     // guarded by mutex_
};

}  // namespace muster::coordinator

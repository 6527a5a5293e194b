// The Admin service: copies of the state, and facts about the coordinator's process.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/job/ids.h"
#include "coordinator/shell/loop/core_loop.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "muster/v1/admin.grpc.pb.h"

namespace muster::coordinator {

// Facts about the coordinator that do not change.
struct AdminFacts {
  std::string version{};
  Epoch epoch{};
  std::string state_dir{};
  std::string tls_cert{};  // the path of the certificate; empty: no TLS
};

class AdminService final : public v1::Admin::CallbackService {
 public:
  // Requires that `loop` outlives the service.
  AdminService(CoreLoop& loop, std::shared_ptr<ShellMetrics> metrics, AdminFacts facts)
      : loop_(loop), metrics_(std::move(metrics)), facts_(std::move(facts)) {}
  // Waits for the end of a copy. Requires that the server was shut down.
  ~AdminService() override;

  grpc::ServerWriteReactor<v1::BackupChunk>* BackupState(
      grpc::CallbackServerContext* context, const v1::BackupStateRequest* request) override;
  grpc::ServerUnaryReactor* GetCoordinator(grpc::CallbackServerContext* context,
                                           const v1::GetCoordinatorRequest* request,
                                           v1::Coordinator* response) override;

 private:
  CoreLoop& loop_;
  const std::shared_ptr<ShellMetrics> metrics_;
  const AdminFacts facts_;
  // True from the begin of a copy to the end of its stream, which may outlive the service.
  const std::shared_ptr<std::atomic<bool>> copying_ = std::make_shared<std::atomic<bool>>(false);
  std::mutex mutex_;
  std::thread copier_;  // guarded by mutex_
};

}  // namespace muster::coordinator

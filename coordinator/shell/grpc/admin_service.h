// The Admin service: copies of the state, profiles, and facts about the coordinator's process.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/job/ids.h"
#include "coordinator/shell/grpc/callers.h"
#include "coordinator/shell/grpc/file_maker.h"
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
  // Requires that `loop` and `callers` outlive the service.
  AdminService(CoreLoop& loop, std::shared_ptr<ShellMetrics> metrics, Callers& callers,
               AdminFacts facts)
      : loop_(loop), metrics_(std::move(metrics)), callers_(callers), facts_(std::move(facts)) {}
  // Stops a copy or a profile. Requires that the server was shut down.
  ~AdminService() override = default;

  grpc::ServerWriteReactor<v1::FileChunk>* BackupState(
      grpc::CallbackServerContext* context, const v1::BackupStateRequest* request) override;
  grpc::ServerWriteReactor<v1::FileChunk>* TakeProfile(
      grpc::CallbackServerContext* context, const v1::TakeProfileRequest* request) override;
  grpc::ServerUnaryReactor* GetCoordinator(grpc::CallbackServerContext* context,
                                           const v1::GetCoordinatorRequest* request,
                                           v1::Coordinator* response) override;

 private:
  CoreLoop& loop_;
  const std::shared_ptr<ShellMetrics> metrics_;
  Callers& callers_;
  const AdminFacts facts_;
  FileMaker copies_{metrics_, "BackupState", "copy of the state"};
  FileMaker profiles_{metrics_, "TakeProfile", "profile"};
};

}  // namespace muster::coordinator

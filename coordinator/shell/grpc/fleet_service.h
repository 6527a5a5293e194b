// The Fleet service: one stream per worker. Handlers convert messages to events, and payloads to
// messages.
#pragma once

#include <memory>
#include <utility>

#include "common/job/ids.h"
#include "coordinator/shell/grpc/unread.h"
#include "coordinator/shell/logs/log_store.h"
#include "coordinator/shell/loop/core_loop.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::coordinator {

class FleetService final : public v1::Fleet::CallbackService {
 public:
  // Requires that `loop` and `logs` outlive the service's streams. The service ends a stream whose
  // worker is not registered within `registration_budget`.
  // `connections`: those of the port; null: unknown.
  FleetService(CoreLoop& loop, LogStore& logs, std::shared_ptr<ShellMetrics> metrics, Epoch epoch,
               Duration registration_budget,
               std::shared_ptr<const OpenConnections> connections = nullptr)
      : loop_(loop),
        logs_(logs),
        metrics_(std::move(metrics)),
        epoch_(epoch),
        registration_budget_(registration_budget),
        connections_(std::move(connections)) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  CoreLoop& loop_;
  LogStore& logs_;
  const std::shared_ptr<ShellMetrics> metrics_;
  Epoch epoch_;
  Duration registration_budget_;
  std::shared_ptr<const OpenConnections> connections_;
};

}  // namespace muster::coordinator

// The Muster service for people and programs. Handlers only convert messages; the core validates
// them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "coordinator/shell/calls/muster_calls.h"
#include "coordinator/shell/grpc/callers.h"
#include "coordinator/shell/grpc/stream_limit.h"
#include "coordinator/shell/grpc/unary_call.h"
#include "coordinator/shell/logs/log_store.h"
#include "coordinator/shell/loop/core_loop.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::coordinator {

class MusterService final : public v1::Muster::CallbackService {
 public:
  // Requires that `loop`, `logs` and `callers` outlive the service's calls.
  MusterService(CoreLoop& loop, LogStore& logs, std::shared_ptr<ShellMetrics> metrics,
                Callers& callers)
      : loop_(loop), calls_(loop), logs_(logs), metrics_(std::move(metrics)), callers_(callers) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override;
  grpc::ServerUnaryReactor* CheckpointJob(grpc::CallbackServerContext* context,
                                          const v1::CheckpointJobRequest* request,
                                          v1::CheckpointJobResponse* response) override;
  grpc::ServerUnaryReactor* UpdateJob(grpc::CallbackServerContext* context,
                                      const v1::UpdateJobRequest* request,
                                      v1::UpdateJobResponse* response) override;
  grpc::ServerWriteReactor<v1::Job>* WatchJob(grpc::CallbackServerContext* context,
                                              const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::LogChunk>* FollowLogs(grpc::CallbackServerContext* context,
                                                     const v1::FollowLogsRequest* request) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* ExcludeWorker(grpc::CallbackServerContext* context,
                                          const v1::ExcludeWorkerRequest* request,
                                          v1::ExcludeWorkerResponse* response) override;
  grpc::ServerUnaryReactor* AdmitWorker(grpc::CallbackServerContext* context,
                                        const v1::AdmitWorkerRequest* request,
                                        v1::AdmitWorkerResponse* response) override;
  grpc::ServerUnaryReactor* CheckNodes(grpc::CallbackServerContext* context,
                                       const v1::CheckNodesRequest* request,
                                       v1::NodeSweep* response) override;
  grpc::ServerUnaryReactor* GetNodeSweep(grpc::CallbackServerContext* context,
                                         const v1::GetNodeSweepRequest* request,
                                         v1::NodeSweep* response) override;
  grpc::ServerUnaryReactor* ListShares(grpc::CallbackServerContext* context,
                                       const v1::ListSharesRequest* request,
                                       v1::ListSharesResponse* response) override;
  grpc::ServerUnaryReactor* ListNodeChecks(grpc::CallbackServerContext* context,
                                           const v1::ListNodeChecksRequest* request,
                                           v1::ListNodeChecksResponse* response) override;
  grpc::ServerUnaryReactor* GetJobHistory(grpc::CallbackServerContext* context,
                                          const v1::GetJobHistoryRequest* request,
                                          v1::GetJobHistoryResponse* response) override;
  grpc::ServerUnaryReactor* ListIncidents(grpc::CallbackServerContext* context,
                                          const v1::ListIncidentsRequest* request,
                                          v1::ListIncidentsResponse* response) override;
  grpc::ServerUnaryReactor* GetIncident(grpc::CallbackServerContext* context,
                                        const v1::GetIncidentRequest* request,
                                        v1::Incident* response) override;
  grpc::ServerUnaryReactor* DumpJobStacks(grpc::CallbackServerContext* context,
                                          const v1::DumpJobStacksRequest* request,
                                          v1::DumpJobStacksResponse* response) override;

 private:
  // Returns a call with a line in the audit log.
  UnaryCall begin(grpc::CallbackServerContext& context, std::string_view method, std::string target,
                  bool is_change);
  // Begins the call in the name of its caller.
  template <class BeginCall>
  void as_caller(const UnaryCall& call, const grpc::CallbackServerContext& context,
                 BeginCall begin_call);
  // Refuses a read while the loop is late. Returns whether it was refused.
  bool is_shed(const UnaryCall& call);
  // Returns the error with which a new stream ends while the loop is late.
  absl::Status admit_stream(grpc::CallbackServerContext& context, const char* method);

  CoreLoop& loop_;
  MusterCalls calls_;
  LogStore& logs_;
  const std::shared_ptr<ShellMetrics> metrics_;
  Callers& callers_;
  StreamLimit streams_;
};

}  // namespace muster::coordinator

#include "coordinator/shell/grpc/muster_service.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/shell/grpc/job_stream.h"
#include "coordinator/shell/grpc/log_stream.h"
#include "coordinator/shell/grpc/unary_call.h"

namespace muster::coordinator {
namespace {

// The time after which the loop has taken the events of a full queue.
constexpr Duration kFullQueueRetry = std::chrono::seconds(2);

std::string job_target(uint64_t job) { return absl::StrCat("job ", job); }

std::string nodes_target(const v1::CheckNodesRequest& request) {
  if (request.workers_size() == 1) return absl::StrCat("node ", request.workers(0));
  return request.workers().empty() ? "idle nodes" : absl::StrCat(request.workers_size(), " nodes");
}

// Answers in place of the loop if the request was rejected.
void refuse_unless_ok(const UnaryCall& call, const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return call.refuse(status, kFullQueueRetry);
  if (!status.ok()) call.finish(status);
}

// Writes the answer of a call to `response`, and ends the call.
template <class T>
MusterCalls::Done<T> answer_to(const UnaryCall& call, T* response) {
  return [=](const absl::Status& status, T answer) {
    *response = std::move(answer);
    call.finish(status);
  };
}

}  // namespace

grpc::ServerUnaryReactor* MusterService::SubmitJob(grpc::CallbackServerContext* context,
                                                   const v1::SubmitJobRequest* request,
                                                   v1::SubmitJobResponse* response) {
  const UnaryCall call = begin(*context, "SubmitJob", request->spec().name(), /*is_change=*/true);
  const auto done = [=](const absl::Status& status, v1::Job job) {
    const std::string target = status.ok() ? job_target(job.id()) : "";
    *response->mutable_job() = std::move(job);
    call.finish(status, target);
  };
  as_caller(call, *context,
            [&](const Caller& caller) { return calls_.submit_job(caller, *request, done); });
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::CancelJob(grpc::CallbackServerContext* context,
                                                   const v1::CancelJobRequest* request,
                                                   v1::CancelJobResponse* response) {
  const UnaryCall call =
      begin(*context, "CancelJob", job_target(request->job_id()), /*is_change=*/true);
  as_caller(call, *context, [&](const Caller& caller) {
    return calls_.cancel_job(caller, *request, answer_to(call, response->mutable_job()));
  });
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::CheckpointJob(grpc::CallbackServerContext* context,
                                                       const v1::CheckpointJobRequest* request,
                                                       v1::CheckpointJobResponse* response) {
  const UnaryCall call =
      begin(*context, "CheckpointJob", job_target(request->job_id()), /*is_change=*/true);
  as_caller(call, *context, [&](const Caller& caller) {
    return calls_.checkpoint_job(caller, *request, answer_to(call, response));
  });
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::UpdateJob(grpc::CallbackServerContext* context,
                                                   const v1::UpdateJobRequest* request,
                                                   v1::UpdateJobResponse* response) {
  const UnaryCall call =
      begin(*context, "UpdateJob", job_target(request->job_id()), /*is_change=*/true);
  as_caller(call, *context, [&](const Caller& caller) {
    return calls_.update_job(caller, *request, answer_to(call, response->mutable_job()));
  });
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetJob(grpc::CallbackServerContext* context,
                                                const v1::GetJobRequest* request,
                                                v1::Job* response) {
  const UnaryCall call(*context, *metrics_, "GetJob", Audit());
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.get_job(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListJobs(grpc::CallbackServerContext* context,
                                                  const v1::ListJobsRequest* request,
                                                  v1::ListJobsResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListJobs", Audit());
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.list_jobs(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListWorkers(grpc::CallbackServerContext* context,
                                                     const v1::ListWorkersRequest* request,
                                                     v1::ListWorkersResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListWorkers", Audit());
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.list_workers(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ExcludeWorker(grpc::CallbackServerContext* context,
                                                       const v1::ExcludeWorkerRequest* request,
                                                       v1::ExcludeWorkerResponse* response) {
  const UnaryCall call = begin(*context, "ExcludeWorker", absl::StrCat("node ", request->worker()),
                               /*is_change=*/true);
  refuse_unless_ok(call,
                   calls_.exclude_worker(*request, answer_to(call, response->mutable_worker())));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::AdmitWorker(grpc::CallbackServerContext* context,
                                                     const v1::AdmitWorkerRequest* request,
                                                     v1::AdmitWorkerResponse* response) {
  const UnaryCall call =
      begin(*context, "AdmitWorker", absl::StrCat("node ", request->worker()), /*is_change=*/true);
  refuse_unless_ok(call,
                   calls_.admit_worker(*request, answer_to(call, response->mutable_worker())));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::CheckNodes(grpc::CallbackServerContext* context,
                                                    const v1::CheckNodesRequest* request,
                                                    v1::NodeSweep* response) {
  const UnaryCall call = begin(*context, "CheckNodes", nodes_target(*request), /*is_change=*/true);
  refuse_unless_ok(call, calls_.check_nodes(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetNodeSweep(grpc::CallbackServerContext* context,
                                                      const v1::GetNodeSweepRequest* request,
                                                      v1::NodeSweep* response) {
  const UnaryCall call(*context, *metrics_, "GetNodeSweep", Audit());
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.get_sweep(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListNodeChecks(grpc::CallbackServerContext* context,
                                                        const v1::ListNodeChecksRequest* request,
                                                        v1::ListNodeChecksResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListNodeChecks", Audit());
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.list_node_checks(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListShares(grpc::CallbackServerContext* context,
                                                    const v1::ListSharesRequest* /*request*/,
                                                    v1::ListSharesResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListShares", Audit());
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.list_shares(answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetJobHistory(grpc::CallbackServerContext* context,
                                                       const v1::GetJobHistoryRequest* request,
                                                       v1::GetJobHistoryResponse* response) {
  const UnaryCall call(*context, *metrics_, "GetJobHistory", Audit());
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.job_history(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListIncidents(grpc::CallbackServerContext* context,
                                                       const v1::ListIncidentsRequest* request,
                                                       v1::ListIncidentsResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListIncidents", Audit());
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.list_incidents(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetIncident(grpc::CallbackServerContext* context,
                                                     const v1::GetIncidentRequest* request,
                                                     v1::Incident* response) {
  const UnaryCall call =
      begin(*context, "GetIncident", absl::StrCat("incident ", request->incident_id()),
            /*is_change=*/false);
  if (is_shed(call)) return call.reactor();
  as_caller(call, *context, [&](const Caller& caller) {
    return calls_.get_incident(caller, *request, answer_to(call, response));
  });
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::DumpJobStacks(grpc::CallbackServerContext* context,
                                                       const v1::DumpJobStacksRequest* request,
                                                       v1::DumpJobStacksResponse* response) {
  const UnaryCall call =
      begin(*context, "DumpJobStacks", job_target(request->job_id()), /*is_change=*/true);
  if (is_shed(call)) return call.reactor();
  as_caller(call, *context, [&](const Caller& caller) {
    return calls_.dump_stacks(caller, *request, answer_to(call, response));
  });
  return call.reactor();
}

UnaryCall MusterService::begin(grpc::CallbackServerContext& context, std::string_view method,
                               std::string target, bool is_change) {
  return {context, *metrics_, method,
          callers_.audit(context, method, std::move(target), is_change)};
}

template <class BeginCall>
void MusterService::as_caller(const UnaryCall& call, const grpc::CallbackServerContext& context,
                              BeginCall begin_call) {
  const absl::StatusOr<Caller> caller = callers_.of(context);
  refuse_unless_ok(call, caller.ok() ? begin_call(*caller) : caller.status());
}

bool MusterService::is_shed(const UnaryCall& call) {
  const absl::Status status = loop_.admit_read(monotonic_now());
  if (status.ok()) return false;
  if (!absl::IsResourceExhausted(status)) {
    call.finish(status);
    return true;
  }
  metrics_->count_shed(call.method());
  call.refuse(status, loop_.retry_after());
  return true;
}

absl::Status MusterService::admit_stream(grpc::CallbackServerContext& context, const char* method) {
  const absl::Status status = loop_.admit_read(monotonic_now());
  if (!absl::IsResourceExhausted(status)) return status;
  metrics_->count_shed(method);
  add_retry_hint(context, loop_.retry_after());
  return status;
}

grpc::ServerWriteReactor<v1::Job>* MusterService::WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) {
  const auto stream = std::make_shared<JobStream>(*context, streams_.take(), metrics_);
  callers_.watch(*context, stream);
  stream->begin(loop_, JobId(request->job_id()), admit_stream(*context, "WatchJob"));
  return stream.get();
}

grpc::ServerWriteReactor<v1::LogChunk>* MusterService::FollowLogs(
    grpc::CallbackServerContext* context, const v1::FollowLogsRequest* request) {
  const auto stream = std::make_shared<LogStream>(
      *context, logs_, *request, streams_.take(), metrics_,
      callers_.audit(*context, "FollowLogs", job_target(request->job_id()), /*is_change=*/false));
  callers_.watch(*context, stream);
  stream->begin(callers_.of(*context), admit_stream(*context, "FollowLogs"));
  return stream.get();
}

}  // namespace muster::coordinator
